#include "ridge/graph/ops/pointwise_depthwise.h"

#include "ridge/graph/ops/product_loop.h"
#include "ridge/graph/ops/registry.h"

namespace ridge {
namespace {

constexpr size_t kFactors = 3;  // x and both weights

Conv2d depthwise(const WindowFields& window, int64_t channels) {
  Conv2d conv;
  conv.window = window;
  conv.groups = channels;
  return conv;
}

// The operands of a loop: its convolution, then `count` inputs of the node from `begin` on.
template <typename T>
std::vector<T> operands(const T& convolution,
                        std::span<const T> inputs,
                        size_t begin,
                        size_t count) {
  std::vector<T> all{convolution};
  const auto from = inputs.subspan(begin, count);
  all.insert(all.end(), from.begin(), from.end());
  return all;
}

}  // namespace

PointwiseDepthwise::Images PointwiseDepthwise::images(std::span<const TensorType> inputs) const {
  const std::string_view name = kTraits.name;
  check(inputs.size() >= kFactors + static_cast<size_t>(first_operands) && first_operands >= 0,
        "[{}] first_operands must count inputs behind the first three; got {} of {} inputs",
        name,
        first_operands,
        inputs.size());
  const TensorType between = Conv2d().infer(inputs.first(2))[0];
  const std::vector<TensorType> second_factors{between, inputs[2]};
  const int64_t channels = between.shape.back();
  const TensorType last = depthwise(window, channels).infer(second_factors)[0];
  check(last.shape.back() == channels,
        "[{}] the second weights must have one filter a channel; got {} of {} channels",
        name,
        last.shape.back(),
        channels);
  return {between, last};
}

std::vector<TensorType> PointwiseDepthwise::infer(std::span<const TensorType> inputs) const {
  const Images made = images(inputs);
  const auto count = static_cast<size_t>(first_operands);
  const auto infer_loop = [&](const Fused& loop, const TensorType& image, size_t begin, size_t n) {
    const auto types = loop.infer(operands(type_in_loop(loop, image), inputs, begin, n));
    check(loop.rows == 0 && types.size() == 1 && types[0].dtype == image.dtype &&
              types[0].elements() == image.elements(),
          "[{}] a loop must make one result of the elements of its convolution, {}",
          kTraits.name,
          to_string(image));
    return types[0];
  };
  const TensorType read = infer_loop(first, made.between, kFactors, count);
  check(read == made.between,
        "[{}] the first loop must keep the shape of its convolution; got {} of {}",
        kTraits.name,
        to_string(read),
        to_string(made.between));
  return {infer_loop(second, made.last, kFactors + count, inputs.size() - kFactors - count)};
}

std::vector<Value> PointwiseDepthwise::expand(std::span<const Value> inputs) const {
  const auto count = static_cast<size_t>(first_operands);
  const auto run_loop = [&](const Fused& loop, Value image, size_t begin, size_t n) {
    const Value read = reshape(image, type_in_loop(loop, image.type()).shape);
    return loop.expand(operands(read, inputs, begin, n))[0];
  };
  const Value wide = run_loop(first, add_node(Conv2d(), {inputs[0], inputs[1]}), kFactors, count);
  const Value seen = add_node(depthwise(window, wide.shape().back()), {wide, inputs[2]});
  return {run_loop(second, seen, kFactors + count, inputs.size() - kFactors - count)};
}

Cost PointwiseDepthwise::cost(std::span<const TensorType> inputs,
                              std::span<const TensorType> outputs) const {
  const Images made = images(inputs);
  const auto count = static_cast<size_t>(first_operands);
  const std::vector<TensorType> between{made.between}, last{made.last};
  const std::vector<TensorType> second_factors{made.between, inputs[2]};
  const Conv2d second_conv = depthwise(window, made.between.shape.back());
  const auto of_loop = [&](const Fused& loop, const TensorType& image, size_t begin, size_t n) {
    return loop.cost(operands(type_in_loop(loop, image), inputs, begin, n), {}).flops;
  };
  return {.flops = Conv2d().cost(inputs.first(2), between).flops +
                   second_conv.cost(second_factors, last).flops +
                   of_loop(first, made.between, kFactors, count) +
                   of_loop(second, made.last, kFactors + count, inputs.size() - kFactors - count),
          .bytes = total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> PointwiseDepthwise::batch_flow(const BatchFlowContext& c) const {
  return second.batch_flow(c);
}

void PointwiseDepthwise::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("first", first.body);
  v.visit("first_operands", first_operands);
  v.visit("second", second.body);
}

void register_pointwise_depthwise(OpRegistry& r) { r.add<PointwiseDepthwise>(); }

}  // namespace ridge
