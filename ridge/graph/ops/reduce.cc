#include "ridge/graph/ops/reduce.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

bool contains(const std::vector<int64_t>& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Shape reduced_shape(const Shape& from, const std::vector<int64_t>& axes, bool keepdims) {
  Shape shape;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool reduced = contains(axes, static_cast<int64_t>(i));
    if (!reduced)
      shape.push_back(from[i]);
    else if (keepdims)
      shape.push_back(1);
  }
  return shape;
}

// `value`, a result of the reduction, with the reduced axes back at size 1.
Value with_reduced_axes(Value value, Value input, const std::vector<int64_t>& axes) {
  return reshape(value, reduced_shape(input.shape(), axes, true));
}

// The axis of the result that axis `axis` of the input becomes.
int64_t kept_position(int64_t axis, const std::vector<int64_t>& axes, bool keepdims) {
  if (keepdims) return axis;
  return axis - std::count_if(axes.begin(), axes.end(), [&](int64_t a) { return a < axis; });
}

// A value that no sample reaches stays uniform along the axes that are left.
BatchFlow reduced_none(const BatchFlow& flow, const std::vector<int64_t>& axes, bool keepdims) {
  uint32_t uniform = 0;
  for (int64_t axis = 0; axis < kMaxRank; ++axis)
    if (!contains(axes, axis) && (flow.uniform >> axis & 1u))
      uniform |= 1u << kept_position(axis, axes, keepdims);
  return BatchFlow::none(uniform);
}

}  // namespace

template <typename Self>
std::vector<TensorType> Reduction<Self>::infer(std::span<const TensorType> inputs) const {
  const bool ascending =
      std::adjacent_find(axes.begin(), axes.end(), std::greater_equal<>()) == axes.end();
  const bool in_range = !axes.empty() && axes.front() >= 0 && axes.back() < inputs[0].rank();
  check(ascending && in_range,
        "[{}] axes must be ascending and within the rank; got {} for {}",
        Self::kTraits.name,
        to_string(axes),
        to_string(inputs[0]));
  return {{inputs[0].dtype, reduced_shape(inputs[0].shape, axes, keepdims)}};
}

template <typename Self>
std::vector<Value> Reduction<Self>::vjp(const VjpContext& c) const {
  const Value x = c.in(0);
  const Value dy = with_reduced_axes(c.dout(), x, axes);
  if constexpr (std::is_same_v<Self, ReduceMax>) {
    const Value is_max = eq(x, with_reduced_axes(c.out(), x, axes));
    const Value one = cast(is_max, x.dtype());
    const Value count = reduce_sum(one, axes, /*keepdims=*/true);
    return {where(is_max, broadcast(dy / count, x.shape()), constant_like(x, 0.0))};
  } else {
    const double scale =
        std::is_same_v<Self, ReduceMean>
            ? static_cast<double>(numel(dy.shape())) / static_cast<double>(numel(x.shape()))
            : 1.0;
    return {broadcast(scale == 1.0 ? dy : dy * scale, x.shape())};
  }
}

template <typename Self>
Cost Reduction<Self>::cost(std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs) const {
  return {static_cast<double>(inputs[0].elements()), total_bytes(inputs) + total_bytes(outputs)};
}

template <typename Self>
std::vector<BatchFlow> Reduction<Self>::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  if (flow.is_none()) return {reduced_none(flow, axes, keepdims)};
  if (!contains(axes, flow.axis))
    return {BatchFlow::split(kept_position(flow.axis, axes, keepdims))};
  if (std::is_same_v<Self, ReduceSum> || std::is_same_v<Self, ReduceSumI8>)
    return {BatchFlow::sum()};
  return {BatchFlow::mixed(std::is_same_v<Self, ReduceMean> ? "the mean runs over the batch"
                                                            : "the maximum runs over the batch")};
}

template class Reduction<ReduceSum>;
template class Reduction<ReduceSumI8>;
template class Reduction<ReduceMean>;
template class Reduction<ReduceMax>;

namespace {

template <typename T>
Value reduce(Value x, std::vector<int64_t> axes, bool keepdims) {
  if (axes.empty()) {
    axes.resize(x.shape().size());
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  for (int64_t& axis : axes) axis = normalize_axis(axis, x.rank(), T::kTraits.name);
  std::sort(axes.begin(), axes.end());
  if (axes.empty()) return x;  // a scalar
  T op;
  op.axes = std::move(axes);
  op.keepdims = keepdims;
  return add_node(std::move(op), {x});
}

}  // namespace

Value reduce_sum(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce<ReduceSum>(x, std::move(axes), keepdims);
}

Value reduce_sum_i8(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce<ReduceSumI8>(x, std::move(axes), keepdims);
}

Value reduce_mean(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce<ReduceMean>(x, std::move(axes), keepdims);
}

Value reduce_max(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce<ReduceMax>(x, std::move(axes), keepdims);
}

// ---- sums of bytes ----

std::vector<TensorType> ReduceSumI8::infer(std::span<const TensorType> inputs) const {
  return {{DType::kI32, Reduction::infer(inputs)[0].shape}};
}

std::vector<Value> ReduceSumI8::expand(std::span<const Value> inputs) const {
  return {reduce_sum(cast(inputs[0], DType::kI32), axes, keepdims)};
}

// ---- argmax ----

std::vector<TensorType> ArgMax::infer(std::span<const TensorType> inputs) const {
  check(axis >= 0 && axis < inputs[0].rank(),
        "[argmax] axis out of range; got {} for {}",
        axis,
        to_string(inputs[0]));
  check(limit >= 0 && limit <= inputs[0].shape[static_cast<size_t>(axis)],
        "[argmax] limit out of range; got {} for axis {} of {}",
        limit,
        axis,
        to_string(inputs[0]));
  return {{DType::kI64, reduced_shape(inputs[0].shape, {axis}, false)}};
}

std::vector<BatchFlow> ArgMax::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  if (flow.is_none()) return {reduced_none(flow, {axis}, false)};
  if (flow.axis == axis) return {BatchFlow::mixed("the argmax runs over the batch")};
  return {BatchFlow::split(kept_position(flow.axis, {axis}, false))};
}

Value argmax(Value x, int64_t axis) {
  ArgMax op;
  op.axis = normalize_axis(axis, x.rank(), "argmax");
  return add_node(std::move(op), {x});
}

void register_reduce(OpRegistry& r) {
  r.add<ReduceSum>();
  r.add<ReduceSumI8>();
  r.add<ReduceMean>();
  r.add<ReduceMax>();
  r.add<ArgMax>();
}

}  // namespace ridge
