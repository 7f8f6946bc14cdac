// Ops that move elements and compute nothing.
#include "ridge/graph/ops/shape.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

bool is_one_pixel(const Shape& shape) {
  return shape.size() == 4 && shape[2] == 1 && shape[3] == 1;
}

// The elements of argument 0 in row-major order under the shape of the result.
void viewed(NodeContext& n) {
  const Shape& shape = n.result_type().shape;
  // The channels of one pixel lie in both orders of axes alike.
  const Value x = n.is_image(0) && is_one_pixel(n.shape(0)) ? n.image(0) : n.value(0);
  if (is_one_pixel(shape)) n.give_image(0, reshape(x, {shape[0], 1, 1, shape[1]}));
  n.give(reshape(x, shape));
}

void permute(NodeContext& n, const std::vector<int64_t>& perm) {
  std::vector<int64_t> sorted = perm;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    check(sorted[i] == static_cast<int64_t>(i), "its axes are no permutation");
  check(std::ssize(perm) == n.rank(0), "it names {} axes of {}", perm.size(), n.rank(0));
  if (perm == kFromImage && !n.is_image(0)) return n.give_image(0, n.value(0));
  n.give(n.moved(0, perm));
}

void permute_of(NodeContext& n) {
  std::vector<int64_t> perm = n.list(1);
  for (int64_t& axis : perm) axis = normalize_axis(axis, n.rank(0), "permute");
  permute(n, perm);
}

std::vector<int64_t> all_axes(const NodeContext& n) {
  std::vector<int64_t> perm(static_cast<size_t>(n.rank(0)));
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

void transpose_of(NodeContext& n) {
  std::vector<int64_t> perm = all_axes(n);
  if (perm.empty()) return n.give(n.value(0));
  std::swap(perm[static_cast<size_t>(n.axis(1, n.rank(0)))],
            perm[static_cast<size_t>(n.axis(2, n.rank(0)))]);
  permute(n, perm);
}

void t(NodeContext& n) {
  check(n.rank(0) <= 2, "it has {} dimensions", n.rank(0));
  std::vector<int64_t> perm = all_axes(n);
  std::ranges::reverse(perm);
  permute(n, perm);
}

void expand(NodeContext& n) {
  const Shape& shape = n.result_type().shape;
  if (n.rank(0) == 4 && shape.size() == 4 && n.is_image(0))
    return n.give_image(0, broadcast(n.image(0), {shape[0], shape[2], shape[3], shape[1]}));
  n.give(broadcast(n.value(0), shape));
}

// ---- along an axis, of an image as it stands ----

struct Axis {
  Value x;
  int64_t axis = 0;
  bool is_image = false;
};

Axis along(NodeContext& n, int64_t axis) {
  if (!n.is_image(0)) return {n.value(0), axis, false};
  return {n.image(0), inverse(kToImage)[static_cast<size_t>(axis)], true};
}

void give_along(NodeContext& n, size_t result, const Axis& of, Value y) {
  of.is_image ? n.give_image(result, y) : n.give(result, y);
}

// `start` or `end` of a slice, which torch cuts to the size.
int64_t bound(const NodeContext& n, size_t argument, int64_t size, int64_t fallback) {
  if (!n.has(argument)) return fallback;
  const int64_t at = n.integer(argument);
  return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
}

void slice_of(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0)), size = n.size(0, axis);
  const int64_t start = bound(n, 2, size, 0), stop = bound(n, 3, size, size);
  check(start < stop, "it has no elements");
  const Axis of = along(n, axis);
  give_along(n, 0, of, slice(of.x, of.axis, start, stop, n.has(4) ? n.integer(4) : 1));
}

int64_t index_of(const NodeContext& n, size_t argument, int64_t size) {
  int64_t index = n.integer(argument);
  if (index < 0) index += size;
  check(index >= 0 && index < size, "index {} of {}", n.integer(argument), size);
  return index;
}

void select(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0));
  const int64_t index = index_of(n, 2, n.size(0, axis));
  const Value x = n.value(0);
  n.give(reshape(slice(x, axis, index, index + 1), n.result_type().shape));
}

void split(NodeContext& n, const std::vector<int64_t>& sizes, int64_t axis) {
  static_cast<void>(n.size(0, axis));
  const Axis of = along(n, axis);
  check(sizes.size() == n.results(), "{} parts for {} results", sizes.size(), n.results());
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); start += sizes[i++]) {
    check(sizes[i] > 0 && sizes[i] <= of.x.dim(of.axis) - start, "a part has size {}", sizes[i]);
    if (n.wants(i)) give_along(n, i, of, slice(of.x, of.axis, start, start + sizes[i]));
  }
}

void split_with_sizes(NodeContext& n) { split(n, n.list(1), n.axis(2, n.rank(0))); }

void split_of(NodeContext& n) {
  const int64_t axis = n.axis(2, n.rank(0)), size = n.size(0, axis);
  const int64_t part = n.integer(1);
  check(part > 0, "parts of {}", part);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < size; at += part) sizes.push_back(std::min(part, size - at));
  split(n, sizes, axis);
}

void unbind(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0));
  const Value x = n.value(0);
  for (size_t i = 0; i < n.results(); ++i) {
    if (!n.wants(i)) continue;
    const auto at = static_cast<int64_t>(i);
    n.give(i, reshape(slice(x, axis, at, at + 1), n.result_type(i).shape));
  }
}

void cat(NodeContext& n) {
  const auto numbers = n.tensors(0);
  bool as_image = false, has_four = true;
  for (const auto& number : numbers) {
    check(number.has_value(), "a tensor is missing");
    as_image = as_image || n.is_image_value(*number);
    has_four = has_four && n.type_of(*number).rank() == 4;
  }
  as_image = as_image && has_four;
  const DType dtype = n.result_type().dtype;
  const int64_t axis =
      n.node().arguments.size() > 1 ? n.axis(1, n.result_type().rank()) : int64_t{0};
  std::vector<Value> parts;
  for (const auto& number : numbers)
    parts.push_back(cast(as_image ? n.image_of(*number) : n.value_of(*number), dtype));
  if (as_image) return n.give_image(0, concat(parts, inverse(kToImage)[static_cast<size_t>(axis)]));
  n.give(concat(parts, axis));
}

// Pairs of what is added before and behind, of the last axis first; less than nothing cuts off.
void constant_pad(NodeContext& n) {
  const std::vector<int64_t> pads = n.list(1);
  const double value = n.has(2) ? n.number_at(2) : 0.0;
  const int64_t rank = n.rank(0);
  check(pads.size() % 2 == 0 && std::ssize(pads) / 2 <= rank, "it has {} pads", pads.size());
  const bool as_image = n.is_image(0);
  Value x = as_image ? n.image(0) : n.value(0);
  std::vector<int64_t> low(static_cast<size_t>(rank), 0), high = low;
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    int64_t axis = rank - 1 - static_cast<int64_t>(i);
    if (as_image) axis = inverse(kToImage)[static_cast<size_t>(axis)];
    const auto at = static_cast<size_t>(axis);
    const int64_t before = pads[2 * i], behind = pads[2 * i + 1], size = x.dim(axis);
    check(before > -size && behind > -size && before < INT32_MAX && behind < INT32_MAX,
          "it is padded by {} and {}",
          before,
          behind);
    x = slice(x, axis, std::max<int64_t>(0, -before), size - std::max<int64_t>(0, -behind));
    low[at] = std::max<int64_t>(0, before);
    high[at] = std::max<int64_t>(0, behind);
  }
  const Value y = pad(x, low, high, value);
  as_image ? n.give_image(0, y) : n.give(y);
}

// Gives the elements of argument `number`, whose strides are argument `from`, to a result whose
// strides are argument `to`, in the order in which they lie.
void give_relaid(NodeContext& n,
                 size_t number,
                 std::string_view name,
                 size_t from,
                 std::string_view result,
                 size_t to) {
  const Shape& shape = n.result_type().shape;
  check(numel(shape) == numel(n.shape(number)), "it has a part of the elements");
  const auto lying = dense_order(n.shape(number), n.list(from), name);
  const auto order = dense_order(shape, n.list(to), result);
  PlacedType placed{n.result_type(), order};
  const Value source = cast(n.moved(number, lying), placed.type.dtype);
  n.give(transpose(reshape(source, placed.lying()), inverse(order)));
}

// as_strided(self, size, stride, storage_offset), with the strides of self behind: both are dense.
void as_strided(NodeContext& n) {
  check(!n.has(3) || n.integer(3) == 0, "it begins within its memory");
  give_relaid(n, 0, "self", 4, "result", 2);
}

// as_strided_scatter(self, src, size, stride, storage_offset), with the strides of self behind:
// where src is written over all of its memory.
void as_strided_scatter(NodeContext& n) {
  check(!n.has(4) || n.integer(4) == 0, "it begins within its memory");
  give_relaid(n, 1, "src", 3, "self", 5);
}

// self with `source` in place of the elements start to stop of an axis.
void give_scattered(NodeContext& n, int64_t axis, int64_t start, int64_t stop, Value source) {
  const Value x = n.value(0);
  std::vector<Value> parts;
  if (start > 0) parts.push_back(slice(x, axis, 0, start));
  parts.push_back(cast(source, x.dtype()));
  if (stop < x.dim(axis)) parts.push_back(slice(x, axis, stop, x.dim(axis)));
  n.give(concat(parts, axis));
}

// The elements start, start + step, ... below stop of an axis come from `source`.
void give_scattered_in_steps(
    NodeContext& n, int64_t axis, int64_t start, int64_t step, Value source) {
  const Value x = n.value(0);
  const auto at = static_cast<size_t>(axis);
  std::vector<int64_t> low(x.shape().size(), 0), high = low, interior = low;
  low[at] = start;
  interior[at] = step - 1;
  high[at] = x.dim(axis) - start - (source.dim(axis) - 1) * step - 1;
  const Value is_there = constant(n.graph(), {DType::kBool, source.shape()}, 1.0);
  n.give(where(pad(is_there, low, high, interior, 0.0),
               pad(cast(source, x.dtype()), low, high, interior, 0.0),
               x));
}

void slice_scatter(NodeContext& n) {
  const int64_t axis = n.axis(2, n.rank(0)), size = n.size(0, axis);
  const int64_t step = n.has(5) ? n.integer(5) : 1;
  const int64_t start = bound(n, 3, size, 0), stop = bound(n, 4, size, size);
  check(start < stop && step >= 1, "it has no elements");
  Shape part = n.shape(0);
  part[static_cast<size_t>(axis)] = (stop - start - 1) / step + 1;
  const Value source = broadcast(n.value(1), part);
  if (step > 1) return give_scattered_in_steps(n, axis, start, step, source);
  give_scattered(n, axis, start, stop, source);
}

void select_scatter(NodeContext& n) {
  const int64_t axis = n.axis(2, n.rank(0));
  const int64_t index = index_of(n, 3, n.size(0, axis));
  Shape part = n.shape(0);
  part[static_cast<size_t>(axis)] = 1;
  give_scattered(n, axis, index, index + 1, reshape(n.value(1), part));
}

void repeat(NodeContext& n) {
  const std::vector<int64_t> counts = n.list(1);
  const Value x = n.value(0);
  const size_t added = counts.size() - std::min(counts.size(), x.shape().size());
  check(counts.size() >= x.shape().size(), "it has {} counts", counts.size());
  Shape apart, repeated;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t size = i < added ? 1 : x.shape()[i - added];
    check(counts[i] >= 1, "it is repeated {} times", counts[i]);
    if (counts[i] != 1) {
      apart.push_back(1);
      repeated.push_back(counts[i]);
    }
    apart.push_back(size);
    repeated.push_back(size);
  }
  n.give(reshape(broadcast(reshape(x, apart), repeated), n.result_type().shape));
}

constexpr OpRow kShapeOps[] = {
    {"_reshape_copy.default", viewed},
    {"_unsafe_view.default", viewed},
    {"as_strided.default", as_strided},
    {"as_strided_scatter.default", as_strided_scatter},
    {"cat.default", cat},
    {"constant_pad_nd.default", constant_pad},
    {"expand.default", expand},
    {"permute.default", permute_of},
    {"repeat.default", repeat},
    {"reshape.default", viewed},
    {"select.int", select},
    {"select_scatter.default", select_scatter},
    {"slice.Tensor", slice_of},
    {"slice_scatter.default", slice_scatter},
    {"split.Tensor", split_of},
    {"split_with_sizes.default", split_with_sizes},
    {"squeeze.default", viewed},
    {"squeeze.dim", viewed},
    {"squeeze.dims", viewed},
    {"t.default", t},
    {"transpose.int", transpose_of},
    {"unbind.int", unbind},
    {"unsqueeze.default", viewed},
    {"view.default", viewed},
};

}  // namespace

std::span<const OpRow> shape_ops() { return kShapeOps; }

}  // namespace ridge::aten
