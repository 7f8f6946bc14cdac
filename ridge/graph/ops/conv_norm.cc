#include "ridge/graph/ops/conv_norm.h"

#include <algorithm>

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/registry.h"

namespace ridge {
namespace {

enum : size_t { kX, kW, kZ, kGamma, kBeta, kMean, kVariance, kDy, kInputNorm };

// Ops of the plain form take over the fields that are theirs.
BatchNormGrad norm_part(const Conv2dNormGrad& op) {
  BatchNormGrad norm;
  norm.eps = op.eps;
  norm.activation = op.activation;
  return norm;
}

template <typename T>
T conv_part(const Conv2dNormGrad& op, std::vector<int64_t> size) {
  T conv;
  conv.window = op.window;
  conv.groups = op.groups;
  conv.size = std::move(size);
  return conv;
}

// Statistics of a whole batch lie in some of the inputs.
std::vector<BatchFlow> whole_batch(const BatchFlowContext& c, size_t results) {
  const bool none =
      std::all_of(c.flows.begin(), c.flows.end(), [](const BatchFlow& f) { return f.is_none(); });
  const BatchFlow flow =
      none ? BatchFlow::none() : BatchFlow::mixed("the statistics run over the batch");
  return std::vector<BatchFlow>(results, flow);
}

Conv2d forward_of(const WindowFields& window, int64_t groups) {
  Conv2d conv;
  conv.window = window;
  conv.groups = groups;
  return conv;
}

}  // namespace

// ---- forward ----

std::vector<TensorType> NormConv2d::infer(std::span<const TensorType> inputs) const {
  check(inputs[0].rank() == 4, "[norm_conv2d] images are needed; got {}", to_string(inputs[0]));
  check_normalized("norm_conv2d", inputs[0], inputs.subspan(1, 3));
  norm_activation(activation, "norm_conv2d");
  const TensorType conv_inputs[] = {inputs[0], inputs[4]};
  return forward_of(window, groups).infer(conv_inputs);
}

std::vector<Value> NormConv2d::expand(std::span<const Value> inputs) const {
  const Value y =
      normalized(inputs[0], inputs.subspan(1, 3), norm_activation(activation, "norm_conv2d"));
  return {conv2d(y, inputs[4], window, groups)};
}

Cost NormConv2d::cost(std::span<const TensorType> inputs,
                      std::span<const TensorType> outputs) const {
  const double products = static_cast<double>(inputs[4].elements() / inputs[4].shape[3]);
  return {2.0 * products * static_cast<double>(outputs[0].elements()) +
              4.0 * static_cast<double>(inputs[0].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> NormConv2d::batch_flow(const BatchFlowContext& c) const {
  const bool only_images =
      c.flows[0].is_split_on(0) &&
      std::all_of(c.flows.begin() + 1, c.flows.end(), [](const auto& f) { return f.is_none(); });
  if (only_images) return {BatchFlow::split(0)};
  return whole_batch(c, 1);
}

void NormConv2d::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  v.visit("activation", activation);
}

// ---- gradients ----

std::vector<TensorType> Conv2dNormGrad::infer(std::span<const TensorType> inputs) const {
  const TensorType z = forward_of(window, groups).infer(inputs.first(2))[0];
  check(
      inputs.size() == kInputNorm || inputs.size() == kInputNorm + 3,
      "[conv2d_norm_grad] a norm before the convolution takes three inputs; got {}, expected 8 or "
      "11",
      inputs.size());
  check_normalized("conv2d_norm_grad", inputs[kX], inputs.subspan(kInputNorm));
  norm_activation(input_activation, "conv2d_norm_grad");
  check(inputs[kZ] == z,
        "[conv2d_norm_grad] the convolution's result has another type; got {}, expected {}",
        to_string(inputs[kZ]),
        to_string(z));
  const std::vector<TensorType> norm = norm_part(*this).infer(inputs.subspan(kZ, kInputNorm - kZ));
  return {inputs[kX], inputs[kW], norm[1], norm[2]};
}

std::vector<Value> Conv2dNormGrad::expand(std::span<const Value> inputs) const {
  const Shape &size = inputs[kX].shape(), &w = inputs[kW].shape();
  Value x = inputs[kX];
  if (inputs.size() > kInputNorm)
    x = normalized(
        x, inputs.subspan(kInputNorm), norm_activation(input_activation, "conv2d_norm_grad"));
  const Value dz = add_node(
      norm_part(*this),
      {inputs[kZ], inputs[kGamma], inputs[kBeta], inputs[kMean], inputs[kVariance], inputs[kDy]});
  return {add_node(conv_part<Conv2dGradInput>(*this, {size[1], size[2]}), {dz, inputs[kW]}),
          add_node(conv_part<Conv2dGradWeight>(*this, {w[0], w[1]}), {x, dz}),
          {dz.node, 1},
          {dz.node, 2}};
}

Cost Conv2dNormGrad::cost(std::span<const TensorType> inputs,
                          std::span<const TensorType> outputs) const {
  const double products = static_cast<double>(inputs[kW].elements() / inputs[kW].shape[3]);
  return {(4.0 * products + 12.0) * static_cast<double>(inputs[kZ].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> Conv2dNormGrad::batch_flow(const BatchFlowContext& c) const {
  return whole_batch(c, 4);
}

void Conv2dNormGrad::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  v.visit("eps", eps);
  v.visit("activation", activation);
  v.visit("input_activation", input_activation);
}

void register_conv_norm(OpRegistry& r) {
  r.add<NormConv2d>();
  r.add<Conv2dNormGrad>();
}

}  // namespace ridge
