// Reductions.
#include "ridge/graph/ops/reduce.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"
#include "ridge/import/onnx/ops/quantize.h"

namespace ridge::onnx {
namespace {

using Axes = std::vector<int64_t>;
/// Reduces the axes, which stay with size 1.
using Reduce = Value (*)(Value x, const Axes& axes);

Value sum(Value x, const Axes& axes) { return reduce_sum(x, axes, true); }

Value mean(Value x, const Axes& axes) {
  if (is_float(x.dtype())) return reduce_mean(x, axes, true);
  return cast(reduce_mean(cast(x, DType::kF64), axes, true), x.dtype());
}

Value largest(Value x, const Axes& axes) {
  if (x.dtype() != DType::kBool) return reduce_max(x, axes, true);
  return cast(reduce_max(cast(x, DType::kU8), axes, true), DType::kBool);
}

// The complement in two's complement turns the order of integers around without overflow.
Value smallest(Value x, const Axes& axes) {
  if (is_float(x.dtype())) return neg(reduce_max(neg(x), axes, true));
  const Value wide = cast(x, DType::kI64);
  return cast(neg(reduce_max(neg(wide) - 1.0, axes, true)) - 1.0, x.dtype());
}

// Pairs are multiplied until one is left.
Value product(Value x, const Axes& axes) {
  for (const int64_t axis : axes) {
    while (x.dim(axis) > 1) {
      const int64_t half = x.dim(axis) / 2;
      Value next = slice(x, axis, 0, half) * slice(x, axis, half, 2 * half);
      if (x.dim(axis) % 2 == 1) next = concat({next, slice(x, axis, 2 * half, 2 * half + 1)}, axis);
      x = next;
    }
  }
  return x;
}

Value l1(Value x, const Axes& axes) { return reduce_sum(abs(x), axes, true); }

Value square_sum(Value x, const Axes& axes) { return reduce_sum(x * x, axes, true); }

Value l2(Value x, const Axes& axes) {
  if (is_float(x.dtype())) return sqrt(square_sum(x, axes));
  return cast(sqrt(square_sum(cast(x, DType::kF64), axes)), x.dtype());
}

Value log_sum(Value x, const Axes& axes) {
  if (is_float(x.dtype())) return log(reduce_sum(x, axes, true));
  return cast(log(reduce_sum(cast(x, DType::kF64), axes, true)), x.dtype());
}

Value log_sum_exp(Value x, const Axes& axes) {
  if (!is_float(x.dtype())) return cast(log_sum_exp(cast(x, DType::kF64), axes), x.dtype());
  const Value most = reduce_max(x, axes, true);
  const Value shift = where(is_finite(most), most, constant_like(most, 0.0));
  return log(reduce_sum(exp(x - shift), axes, true)) + shift;
}

// The shape without those axes.
Shape without(const Shape& shape, const Axes& axes) {
  Shape left;
  for (size_t i = 0; i < shape.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end())
      left.push_back(shape[i]);
  return left;
}

// Nothing is reduced, but the rest of the operation is done: each element is a row of its own.
template <Reduce kReduce>
void give_unreduced(NodeContext& n) {
  const Value x = n.value(0);
  const int64_t count = x.type().elements();
  n.give(reshape(kReduce(reshape(x, {count, 1}), {1}), x.shape()));
}

// Reduces input 0, which is no scalar, or the image that it is.
template <Reduce kReduce>
Value reduced(NodeContext& n, const Axes& axes, bool is_image) {
  if constexpr (kReduce == mean)
    if (const Value y = mean_of_bytes(n, axes, is_image)) return y;
  return kReduce(is_image ? n.image(0) : n.value(0), axes);
}

template <Reduce kReduce>
void reduce(NodeContext& n) {
  Axes axes = n.list_or_input("axes", 1);
  if (axes.empty()) {
    if (n.integer("noop_with_empty_axes", 0) != 0) return give_unreduced<kReduce>(n);
    axes.resize(static_cast<size_t>(n.rank(0)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = normalized_axes(std::move(axes), n.rank(0));
  const bool keeps = n.integer("keepdims", 1) != 0;
  const bool is_spatial = axes == Axes{2, 3};  // then the order of what is left is the same
  if (n.is_image(0) && (keeps || is_spatial)) {
    const Value y = reduced<kReduce>(n, normalized_axes(image_axes(axes), 4), true);
    return keeps ? n.give_image(0, y) : n.give(reshape(y, {y.dim(0), y.dim(3)}));
  }
  // A scalar is one row.
  const bool is_scalar = n.rank(0) == 0;
  const Value y =
      is_scalar ? kReduce(reshape(n.value(0), {1}), {0}) : reduced<kReduce>(n, axes, false);
  n.give(keeps && !is_scalar ? y : reshape(y, without(n.shape(0), axes)));
}

constexpr OpRow kReduceOps[] = {
    {"ReduceL1", reduce<l1>},
    {"ReduceL2", reduce<l2>},
    {"ReduceLogSum", reduce<log_sum>},
    {"ReduceLogSumExp", reduce<log_sum_exp>},
    {"ReduceMax", reduce<largest>},
    {"ReduceMean", reduce<mean>},
    {"ReduceMin", reduce<smallest>},
    {"ReduceProd", reduce<product>},
    {"ReduceSum", reduce<sum>},
    {"ReduceSumSquare", reduce<square_sum>},
};

}  // namespace

std::span<const OpRow> reduce_ops() { return kReduceOps; }

}  // namespace ridge::onnx
