// Reductions.
#include "ridge/graph/ops/reduce.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

using Reduce = Value (*)(Value, std::vector<int64_t>, bool);

// Over `axes` of argument 0 as values of `dtype`. An image that stays one, or loses its height and
// width, is reduced as it is.
void reduced(
    NodeContext& n, const std::vector<int64_t>& axes, bool keeps, DType dtype, Reduce reduce) {
  const DType result = n.result_type().dtype;
  const auto apply = [&](Value x, const std::vector<int64_t>& of) {
    return of.empty() ? cast(cast(x, dtype), result)
                      : cast(reduce(cast(x, dtype), of, keeps), result);
  };
  const bool is_pooled = axes == std::vector<int64_t>{2, 3};
  if (!n.is_image(0) || (!keeps && !is_pooled && axes.size() < 3))
    return n.give(apply(n.value(0), axes));
  std::vector<int64_t> of_image;
  for (const int64_t axis : axes) of_image.push_back(kFromImage[static_cast<size_t>(axis)]);
  std::ranges::sort(of_image);
  const Value y = apply(n.image(0), of_image);
  keeps ? n.give_image(0, y) : n.give(y);
}

template <Reduce kReduce>
void over_list(NodeContext& n) {
  const bool keeps = n.has(2) && n.flag(2);
  const DType dtype = n.result_type().dtype;
  check(dtype != DType::kBool, "it is of bools");
  reduced(n, n.axes(1, n.rank(0)), keeps, dtype, kReduce);
}

template <Reduce kReduce>
void over_all(NodeContext& n) {
  std::vector<int64_t> axes(static_cast<size_t>(n.rank(0)));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  reduced(n, axes, false, n.result_type().dtype, kReduce);
}

void any_along(NodeContext& n, std::vector<int64_t> axes, bool keeps) {
  const Value x = cast(cast(n.value(0), DType::kBool), DType::kU8);
  n.give(cast(axes.empty() ? x : reduce_max(x, std::move(axes), keeps), DType::kBool));
}

void any_dim(NodeContext& n) { any_along(n, {n.axis(1, n.rank(0))}, n.has(2) && n.flag(2)); }

void any_dims(NodeContext& n) { any_along(n, n.axes(1, n.rank(0)), n.has(2) && n.flag(2)); }

Value reduce_min(Value x, std::vector<int64_t> axes, bool keeps) {
  return neg(reduce_max(neg(x), std::move(axes), keeps));
}

void amin(NodeContext& n) {
  check(is_float(n.dtype(0)), "it is of {}", name_of(n.dtype(0)));
  over_list<reduce_min>(n);
}

void argmax_of(NodeContext& n) {
  check(n.has(1), "it has no axis");
  const int64_t axis = n.axis(1, n.rank(0));
  n.give(reshape(argmax(n.value(0), axis), n.result_type().shape));
}

// cumsum(self, dim, dtype), each sum by itself: for the short axes of positions and masks.
void cumsum(NodeContext& n) {
  constexpr int64_t kMostTerms = int64_t{1} << 22;
  const DType dtype = n.result_type().dtype;
  const Value x = cast(n.value(0), dtype);
  if (x.rank() == 0) return n.give(x);
  const int64_t axis = n.axis(1, x.rank()), size = x.dim(axis);
  check(dtype != DType::kBool && x.type().elements() <= kMostTerms / size,
        "{} sums along an axis of {}",
        x.type().elements(),
        size);
  Shape apart = x.shape();
  apart.insert(apart.begin() + axis, 1);
  // Sum i has the terms j up to i: (..., i, j, ...).
  const TensorType square{DType::kI64, {size, size}};
  const Value counts = le(iota(n.graph(), square, 1), iota(n.graph(), square, 0));
  Shape wide(apart.size(), 1);
  wide[static_cast<size_t>(axis)] = wide[static_cast<size_t>(axis) + 1] = size;
  const Value terms =
      where(reshape(counts, wide), reshape(x, apart), constant(n.graph(), {dtype, {}}, 0.0));
  n.give(reduce_sum(terms, {axis + 1}));
}

constexpr OpRow kReduceOps[] = {
    {"amax.default", over_list<reduce_max>},
    {"amin.default", amin},
    {"any.dim", any_dim},
    {"any.dims", any_dims},
    {"argmax.default", argmax_of},
    {"cumsum.default", cumsum},
    {"mean.default", over_all<reduce_mean>},
    {"mean.dim", over_list<reduce_mean>},
    {"sum.default", over_all<reduce_sum>},
    {"sum.dim_IntList", over_list<reduce_sum>},
};

}  // namespace

std::span<const OpRow> reduce_ops() { return kReduceOps; }

}  // namespace ridge::aten
