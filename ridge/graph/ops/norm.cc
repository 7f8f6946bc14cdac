#include "ridge/graph/ops/norm.h"

#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"

namespace ridge {
namespace {

void check_norm(std::string_view op, std::span<const TensorType> inputs, double eps) {
  check(inputs[0].rank() >= 1,
        "[{}] at least one dimension is needed; got {}",
        op,
        to_string(inputs[0]));
  const TensorType channel{inputs[0].dtype, {inputs[0].shape.back()}};
  for (const TensorType& type : inputs.subspan(1))
    check(type == channel,
          "[{}] scale and shift go with the last axis; got {}, expected {}",
          op,
          to_string(type),
          to_string(channel));
  check(eps >= 0.0 && eps < 1.0, "[{}] eps out of range; got {}, expected 0 to 1", op, eps);
}

// About eight operations an element: two for the mean and the variance each, four to normalise.
Cost norm_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) {
  return {8.0 * static_cast<double>(inputs[0].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> last_axis_flow(const BatchFlowContext& c) {
  const BatchFlow& x = c.flows[0];
  for (const BatchFlow& flow : c.flows.subspan(1))
    if (!flow.is_none()) return {BatchFlow::mixed("the scale differs from sample to sample")};
  if (x.is_none()) return {BatchFlow::none(x.uniform & ~(1u << (c.inputs[0].rank() - 1)))};
  if (x.axis == c.inputs[0].rank() - 1) return {BatchFlow::mixed("the norm runs over the batch")};
  return {x};
}

Value normalized(Value centered, const std::vector<int64_t>& axes, double eps) {
  return centered * rsqrt(reduce_mean(centered * centered, axes, /*keepdims=*/true) + eps);
}

// The sum over all axes but the last.
Value over_rows(Value x) {
  if (x.rank() == 1) return x;
  std::vector<int64_t> axes(static_cast<size_t>(x.rank()) - 1);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return reduce_sum(x, axes);
}

}  // namespace

// ---- layer norm ----

std::vector<TensorType> LayerNorm::infer(std::span<const TensorType> inputs) const {
  check_norm("layer_norm", inputs, eps);
  return {inputs[0]};
}

std::vector<Value> LayerNorm::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0];
  const Value centered = x - reduce_mean(x, {-1}, /*keepdims=*/true);
  return {normalized(centered, {-1}, eps) * inputs[1] + inputs[2]};
}

// The gradient of expand() has one sum more over each row: the term that flows through the mean by
// way of the variance. It is zero but for rounding, so this rule leaves it out.
std::vector<Value> LayerNorm::vjp(const VjpContext& c) const {
  const Value x = c.in(0), dy = c.dout();
  const auto row_mean = [](Value of) { return reduce_mean(of, {-1}, /*keepdims=*/true); };
  const Value centered = x - row_mean(x);
  const Value scale = rsqrt(row_mean(centered * centered) + eps);
  const Value y = centered * scale, scaled = dy * c.in(1);
  const Value slope = row_mean(scaled * centered) * scale;
  const Value dx = (scaled - row_mean(scaled) - y * slope) * scale;
  return {dx, over_rows(dy * y), over_rows(dy)};
}

Cost LayerNorm::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return norm_cost(i, o);
}

std::vector<BatchFlow> LayerNorm::batch_flow(const BatchFlowContext& c) const {
  return last_axis_flow(c);
}

// ---- root-mean-square norm ----

std::vector<TensorType> RmsNorm::infer(std::span<const TensorType> inputs) const {
  check_norm("rms_norm", inputs, eps);
  return {inputs[0]};
}

std::vector<Value> RmsNorm::expand(std::span<const Value> inputs) const {
  return {normalized(inputs[0], {-1}, eps) * inputs[1]};
}

Cost RmsNorm::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return norm_cost(i, o);
}

std::vector<BatchFlow> RmsNorm::batch_flow(const BatchFlowContext& c) const {
  return last_axis_flow(c);
}

// ---- builders ----

Value layer_norm(Value x, Value gamma, Value beta, double eps) {
  LayerNorm op;
  op.eps = eps;
  return add_node(std::move(op), {x, gamma, beta});
}

Value rms_norm(Value x, Value gamma, double eps) {
  RmsNorm op;
  op.eps = eps;
  return add_node(std::move(op), {x, gamma});
}

void register_norm(OpRegistry& r) {
  r.add<LayerNorm>();
  r.add<RmsNorm>();
}

}  // namespace ridge
