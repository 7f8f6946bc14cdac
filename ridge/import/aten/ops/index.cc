// Looking up by index, and what adds up or sets there.
#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"
#include "ridge/import/builders/indexing.h"

namespace ridge::aten {
namespace {

// Bools and 16-bit integers are looked up as they are where Gather takes them.
Value gathered(Value x, Value indices, int64_t axis) {
  if (x.dtype() != DType::kBool) return gather(x, indices, axis);
  return cast(gather(cast(x, DType::kU8), indices, axis), DType::kBool);
}

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
void embedding_of(NodeContext& n) {
  const Value ids = n.value(1);
  n.give(gathered(n.value(0), ids.dtype() == DType::kI32 ? ids : cast(ids, DType::kI64), 0));
}

// embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
void embedding_backward(NodeContext& n) {
  check(!n.flag(4), "gradients are scaled by frequency");
  const int64_t rows = n.integer(2), padding = n.integer(3);
  Value dy = n.value(0);
  const Value ids = cast(n.value(1), DType::kI64);
  if (padding >= 0) {
    Shape column = ids.shape();
    column.push_back(1);
    const Value is_padding =
        reshape(eq(ids, constant_like(ids, static_cast<double>(padding))), column);
    dy = where(is_padding, constant(n.graph(), {dy.dtype(), {}}, 0.0), dy);
  }
  n.give(scatter_add(dy, ids, 0, rows));
}

void index_select(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0));
  check(n.rank(2) == 1 && n.rank(0) > 0, "it looks up {} by {}", n.rank(0), n.rank(2));
  n.give(gathered(n.value(0), n.value(2), axis));
}

// Tensors of indices for axes in a row, as one for them all: x with those axes as one, and the
// number of the first.
struct Lookup {
  int64_t axis = 0, axes = 0;
  Value indices;
};

Value is_inside(Value indices, int64_t size) {
  return logical_and(ge(indices, constant_like(indices, 0.0)),
                     lt(indices, constant_like(indices, static_cast<double>(size))));
}

Lookup lookup(NodeContext& n, size_t argument, const Shape& shape) {
  const auto numbers = n.tensors(argument);
  Lookup of;
  Value inside;
  check(numbers.size() <= shape.size(), "{} indices for {} axes", numbers.size(), shape.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!numbers[i]) continue;
    if (!of.indices) of.axis = static_cast<int64_t>(i);
    check(!of.indices || of.axis + of.axes == static_cast<int64_t>(i),
          "its indices are not of axes in a row");
    const int64_t size = shape[i];
    const Value indices = from_front(n.value_of(*numbers[i]), size);
    of.indices = of.indices ? of.indices * static_cast<double>(size) + indices : indices;
    const Value here = broadcast(is_inside(indices, size), of.indices.shape());
    inside = inside ? logical_and(broadcast(inside, of.indices.shape()), here) : here;
    ++of.axes;
  }
  check(of.axes > 0, "it has no indices");
  // An index out of range of its axis is out of range of all of them.
  if (of.axes > 1) of.indices = where(inside, of.indices, constant_like(of.indices, -1.0));
  return of;
}

Shape merged(const Shape& shape, const Lookup& of) {
  Shape result(shape.begin(), shape.begin() + of.axis);
  int64_t size = 1;
  for (int64_t i = of.axis; i < of.axis + of.axes; ++i) size *= shape[static_cast<size_t>(i)];
  result.push_back(size);
  result.insert(result.end(), shape.begin() + of.axis + of.axes, shape.end());
  return result;
}

void index(NodeContext& n) {
  const Value x = n.value(0);
  const Lookup of = lookup(n, 1, x.shape());
  n.give(gathered(reshape(x, merged(x.shape(), of)), of.indices, of.axis));
}

// index_put(self, indices, values, accumulate)
void index_put(NodeContext& n) {
  check(n.has(3) && n.flag(3), "elements are set, not added");
  const Value x = n.value(0);
  const Lookup of = lookup(n, 1, x.shape());
  const Value base = reshape(x, merged(x.shape(), of));
  Shape updates(base.shape().begin(), base.shape().begin() + of.axis);
  updates.insert(updates.end(), of.indices.shape().begin(), of.indices.shape().end());
  updates.insert(updates.end(), base.shape().begin() + of.axis + 1, base.shape().end());
  const Value values = broadcast(cast(n.value(2), x.dtype()), updates);
  n.give(reshape(scatter_add_to(base, values, of.indices, of.axis), x.shape()));
}

// The one index of each row along `axis`, (...) of (..., 1).
Value row_indices(const NodeContext& n, int64_t axis, size_t argument) {
  Shape wanted = n.shape(0);
  check(!wanted.empty(), "it has no dimensions");
  wanted[static_cast<size_t>(axis)] = 1;
  check(n.shape(argument) == wanted,
        "its indices are {} for {}: only one a row is supported",
        to_string(n.shape(argument)),
        to_string(n.shape(0)));
  const Value last = axis_to_end(cast(n.value(argument), DType::kI64), axis);
  return reshape(last, {last.shape().begin(), last.shape().end() - 1});
}

// gather(self, dim, index, sparse_grad): of each row along the axis the elements at its indices.
void gather_of(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0));
  check(n.rank(0) > 0 && n.rank(2) == n.rank(0), "it has no axis for its indices");
  // Rows without indices are not looked at.
  Value x = n.value(0);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) x = slice(x, i, 0, n.shape(2)[static_cast<size_t>(i)]);
  x = axis_to_end(x, axis);
  const Value indices = axis_to_end(cast(n.value(2), DType::kI64), axis);
  const int64_t columns = x.dim(-1), rows = x.type().elements() / columns;
  const Value at = reshape(indices, {rows, -1});
  const Value row = iota(n.graph(), {DType::kI64, {rows, 1}}, 0);
  // An index out of range of its row is out of range of all rows, too.
  const Value place = where(
      is_inside(at, columns), row * static_cast<double>(columns) + at, constant_like(at, -1.0));
  n.give(axis_from_end(reshape(gathered(reshape(x, {-1}), place, 0), indices.shape()), axis));
}

// scatter.value(self, dim, index, value): the index of a row is in range, or the row stays.
void scatter_value(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0));
  const Value x = axis_to_end(n.value(0), axis);
  const Value hot = one_hot(row_indices(n, axis, 2), x.dim(-1), DType::kF32);
  const Value is_hot = ne(hot, constant_like(hot, 0.0));
  n.give(axis_from_end(where(is_hot, scalar(n, 3, x.dtype()), x), axis));
}

// scatter.src and scatter_add of one element a row.
void scatter_add_of(NodeContext& n) {
  const int64_t axis = n.axis(1, n.rank(0));
  const Value x = axis_to_end(n.value(0), axis);
  const Value hot = one_hot(row_indices(n, axis, 2), x.dim(-1), DType::kF32);
  const Value is_hot = ne(hot, constant_like(hot, 0.0));
  n.give(axis_from_end(where(is_hot, x + axis_to_end(n.value(3), axis), x), axis));
}

constexpr OpRow kIndexOps[] = {
    {"embedding.default", embedding_of},
    {"embedding_dense_backward.default", embedding_backward},
    {"gather.default", gather_of},
    {"index.Tensor", index},
    {"index_put.default", index_put},
    {"index_select.default", index_select},
    {"scatter.value", scatter_value},
    {"scatter_add.default", scatter_add_of},
};

}  // namespace

std::span<const OpRow> index_ops() { return kIndexOps; }

}  // namespace ridge::aten
