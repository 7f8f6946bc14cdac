// Operators that look elements up or put them by index, and that sort them.
#include <algorithm>
#include <numeric>
#include <optional>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/indexing.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

// Makes a builder of numbers one of bools, too.
template <typename F>
Value as_numbers(Value x, F&& body) {
  if (x.dtype() != DType::kBool) return body(x);
  return cast(body(cast(x, DType::kU8)), DType::kBool);
}

// The known indices of an input, from 0 on; nothing where they are data of a run. Those are checked
// by the run.
std::optional<std::vector<int64_t>> known_indices(NodeContext& n, size_t input, int64_t size) {
  const Known* known = n.known(input);
  if (known == nullptr) return std::nullopt;
  std::vector<int64_t> indices = known->integers();
  for (int64_t& index : indices) {
    check(index >= -size && index < size, "index {} is outside of an axis of {}", index, size);
    if (index < 0) index += size;
  }
  return indices;
}

// Whether these are all places of an axis, in their order. Exporters write out such lookups of a
// padding mask, by numbers of rows and columns; as a reshape it moves nothing, and keeps rows
// apart.
bool is_whole_axis(const std::vector<int64_t>& indices, int64_t size) {
  if (std::ssize(indices) != size) return false;
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i] != static_cast<int64_t>(i)) return false;
  return true;
}

void gather_of(NodeContext& n) {
  const int64_t axis = normalize_axis(n.integer("axis", 0), n.rank(0), "axis");
  const int64_t size = n.shape(0)[static_cast<size_t>(axis)];
  Shape shape = n.shape(0);
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, n.shape(1).begin(), n.shape(1).end());
  if (checked_elements(n.dtype(0), shape, "gather") == 0)
    return n.give(Known::empty(n.dtype(0), std::move(shape)));
  const auto indices = known_indices(n, 1, size);
  if (indices && is_whole_axis(*indices, size)) return n.give(reshape(n.value(0), shape));
  if (indices && indices->size() == 1) {
    const int64_t at = indices->front();
    return n.give(reshape(slice(n.value(0), axis, at, at + 1), shape));
  }
  if (indices) return n.give(reshape(take(n, n.value(0), *indices, axis), shape));
  const Value places = from_front(n.value(1), size);
  n.give(as_numbers(n.value(0), [&](Value x) { return gather(x, places, axis); }));
}

// Row-major distances between neighbours of each axis.
std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

int64_t product(const Shape& shape, size_t first, size_t last) {
  return std::accumulate(shape.begin() + static_cast<int64_t>(first),
                         shape.begin() + static_cast<int64_t>(last),
                         int64_t{1},
                         std::multiplies<>());
}

// The numbers, but -1, which a run refuses, where an index lies outside of its axis: such a number
// could be that of another row.
Value in_axis(Value numbers, Value along, int64_t size) {
  const Value inside = logical_and(ge(along, constant_like(along, 0.0)),
                                   lt(along, constant_like(along, static_cast<double>(size))));
  return where(inside, numbers, constant_like(numbers, -1.0));
}

// The number, in a tensor of `shape`, of the element that has the place of an index but for `axis`,
// where the index says it.
Value element_numbers(Value indices, const Shape& shape, int64_t axis) {
  const std::vector<int64_t> strides = strides_of(shape);
  const Value along = from_front(indices, shape[static_cast<size_t>(axis)]);
  Value numbers = along * static_cast<double>(strides[static_cast<size_t>(axis)]);
  for (int64_t i = 0; i < along.rank(); ++i)
    if (i != axis)
      numbers = numbers + iota(along.graph(), along.type(), i) *
                              static_cast<double>(strides[static_cast<size_t>(i)]);
  return in_axis(numbers, along, shape[static_cast<size_t>(axis)]);
}

// Known indices outside of their axis are refused now.
void check_element_indices(NodeContext& n, size_t input, const Shape& shape, int64_t axis) {
  check(n.rank(input) == std::ssize(shape),
        "indices have {} dimensions; expected {}",
        n.rank(input),
        shape.size());
  for (size_t i = 0; i < shape.size(); ++i)
    check(static_cast<int64_t>(i) == axis || n.shape(input)[i] <= shape[i],
          "indices {} are for more than {}",
          to_string(n.shape(input)),
          to_string(shape));
  known_indices(n, input, shape[static_cast<size_t>(axis)]);
}

void gather_elements(NodeContext& n) {
  const Shape& shape = n.shape(0);
  const int64_t axis = normalize_axis(n.integer("axis", 0), n.rank(0), "axis");
  check_element_indices(n, 1, shape, axis);
  const Value numbers = element_numbers(n.value(1), shape, axis);
  n.give(as_numbers(n.value(0), [&](Value x) { return gather(reshape(x, {-1}), numbers, 0); }));
}

// Indices (..., K) of the first K axes of `shape`, as numbers of its parts below them (...).
Value part_numbers(NodeContext& n, size_t input, const Shape& shape, size_t batch) {
  const int64_t depth = n.shape(input).back();
  check(depth >= 1 && batch + static_cast<size_t>(depth) <= shape.size(),
        "indices have {} numbers for {}",
        depth,
        to_string(shape));
  const Shape front(shape.begin(), shape.begin() + static_cast<int64_t>(batch) + depth);
  const std::vector<int64_t> strides = strides_of(front);
  const Value indices = n.value(input);
  const int64_t last = indices.rank() - 1;
  Shape outer = indices.shape();
  outer.pop_back();
  const Known* known = n.known(input);
  Value numbers;
  std::vector<Value> columns;
  for (int64_t k = 0; k < depth; ++k) {
    const auto axis = static_cast<size_t>(k) + batch;
    if (known != nullptr) {
      const std::vector<int64_t> all = known->integers();
      for (size_t i = static_cast<size_t>(k); i < all.size(); i += static_cast<size_t>(depth))
        check(all[i] >= -shape[axis] && all[i] < shape[axis],
              "index {} is outside of an axis of {}",
              all[i],
              shape[axis]);
    }
    columns.push_back(from_front(reshape(slice(indices, last, k, k + 1), outer), shape[axis]));
    const Value part = columns.back() * static_cast<double>(strides[axis]);
    numbers = numbers ? numbers + part : part;
  }
  for (size_t i = 0; i < batch; ++i)
    numbers = numbers + iota(numbers.graph(), numbers.type(), static_cast<int64_t>(i)) *
                            static_cast<double>(strides[i]);
  for (size_t k = 0; k < columns.size(); ++k)
    numbers = in_axis(numbers, columns[k], shape[k + batch]);
  return numbers;
}

// The known indices (..., K) of the first K axes of `shape` as numbers of its parts below them,
// none of which is negative; nothing where they are data of a run, or where one is outside.
std::optional<std::vector<int64_t>> known_part_numbers(NodeContext& n,
                                                       size_t input,
                                                       const Shape& shape) {
  const Known* known = n.known(input);
  if (known == nullptr) return std::nullopt;
  const auto depth = static_cast<size_t>(known->shape().back());
  if (depth < 1 || depth > shape.size()) return std::nullopt;
  const std::vector<int64_t> all = known->integers();
  std::vector<int64_t> numbers(all.size() / depth);
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t size = shape[i % depth], index = all[i] < 0 ? all[i] + size : all[i];
    if (index < 0 || index >= size) return std::nullopt;
    numbers[i / depth] = numbers[i / depth] * size + index;
  }
  return numbers;
}

void gather_nd(NodeContext& n) {
  const Shape& shape = n.shape(0);
  const int64_t batch_dims = n.integer("batch_dims", 0);
  check(batch_dims >= 0 && batch_dims < n.rank(0) && batch_dims < n.rank(1),
        "it has {} batch dimensions",
        batch_dims);
  const auto batch = static_cast<size_t>(batch_dims);
  check(std::equal(shape.begin(), shape.begin() + batch_dims, n.shape(1).begin()),
        "batch dimensions of {} and {} differ",
        to_string(shape),
        to_string(n.shape(1)));
  const size_t first = batch + static_cast<size_t>(n.shape(1).back());
  const auto known = batch == 0 ? known_part_numbers(n, 1, shape) : std::nullopt;
  if (known && is_whole_axis(*known, product(shape, 0, first))) {
    Shape result(n.shape(1).begin(), n.shape(1).end() - 1);
    result.insert(result.end(), shape.begin() + static_cast<int64_t>(first), shape.end());
    return n.give(reshape(n.value(0), result));
  }
  const Value numbers = part_numbers(n, 1, shape, batch);
  Shape rows{product(shape, 0, first)};
  rows.insert(rows.end(), shape.begin() + static_cast<int64_t>(first), shape.end());
  n.give(as_numbers(n.value(0), [&](Value x) { return gather(reshape(x, rows), numbers, 0); }));
}

// `base` (R, ...), with rows replaced by updates, or with them added.
Value scattered(Value base, Value updates, Value rows, const std::string& reduction) {
  if (reduction == "add") return scatter_add_to(base, updates, rows, 0);
  check(reduction == "none", "reduction '{}' is not supported", reduction);
  const int64_t size = base.dim(0);
  return as_numbers(base, [&](Value kept) {
    const Value moved = scatter_add(cast(updates, kept.dtype()), rows, 0, size);
    const Value ones = constant(kept.graph(), {DType::kI32, rows.shape()}, 1.0);
    const Value counts = scatter_add(ones, rows, 0, size);
    Shape shape(static_cast<size_t>(kept.rank()), 1);
    shape[0] = size;
    const Value is_written =
        gt(reshape(counts, shape), constant(kept.graph(), {DType::kI32, {}}, 0.0));
    return where(is_written, moved, kept);
  });
}

void scatter_nd(NodeContext& n) {
  const Shape& shape = n.shape(0);
  check(n.rank(1) >= 1, "indices have no dimension");
  const auto depth = static_cast<size_t>(n.shape(1).back());
  const Value numbers = part_numbers(n, 1, shape, 0);
  Shape rows{product(shape, 0, depth)}, updates{numbers.type().elements()};
  rows.insert(rows.end(), shape.begin() + static_cast<int64_t>(depth), shape.end());
  updates.insert(updates.end(), rows.begin() + 1, rows.end());
  const Value result = scattered(reshape(n.value(0), rows),
                                 reshape(n.value(2), updates),
                                 reshape(numbers, {-1}),
                                 n.text("reduction", "none"));
  n.give(reshape(result, shape));
}

void scatter_elements(NodeContext& n) {
  const Shape& shape = n.shape(0);
  const int64_t axis = normalize_axis(n.integer("axis", 0), n.rank(0), "axis");
  check_element_indices(n, 1, shape, axis);
  const Value numbers = element_numbers(n.value(1), shape, axis);
  const Value result = scattered(reshape(n.value(0), {-1}),
                                 reshape(n.value(2), {-1}),
                                 reshape(numbers, {-1}),
                                 n.text("reduction", "none"));
  n.give(reshape(result, shape));
}

// ---- order ----

// Elements whose order is the other one.
Value negated(Value x) { return neg(is_float(x.dtype()) ? x : cast(x, DType::kI64)); }

template <bool kLargest>
void arg_extreme(NodeContext& n) {
  const int64_t axis = normalize_axis(n.integer("axis", 0), n.rank(0), "axis");
  const bool is_last = n.integer("select_last_index", 0) != 0;
  Value x = n.value(0);
  if (!kLargest) x = negated(x);
  const int64_t size = x.dim(axis);
  Value index = argmax(is_last ? reversed(n, x, axis) : x, axis);
  if (is_last) index = static_cast<double>(size - 1) - index;
  if (n.integer("keepdims", 1) != 0) {
    Shape shape = n.shape(0);
    shape[static_cast<size_t>(axis)] = 1;
    index = reshape(index, shape);
  }
  n.give(index);
}

// The rank of an element is how many come before it. A row of n elements takes n^2 comparisons.
void top_k(NodeContext& n) {
  constexpr double kMostComparisons = 1 << 26;
  const int64_t k = n.opset() < 10 ? n.integer("k") : n.whole(1, "count");
  const int64_t axis = normalize_axis(n.integer("axis", -1), n.rank(0), "axis");
  const int64_t size = n.shape(0)[static_cast<size_t>(axis)];
  check(k >= 1 && k <= size, "it takes {} of {}", k, size);
  const Value x = axis_to_end(n.value(0), axis);
  check(static_cast<double>(x.type().elements()) * static_cast<double>(size) <= kMostComparisons,
        "an axis of {} is too long",
        size);
  const Value key = n.integer("largest", 1) != 0 ? x : negated(x);
  Shape row = x.shape(), column = x.shape();
  row.insert(row.end() - 1, 1);
  column.push_back(1);
  const Value other = reshape(key, row), own = reshape(key, column);
  const Shape square = broadcast_shape(row, column, "top_k");
  const TensorType numbers{DType::kI64, square};
  const int64_t last = std::ssize(square) - 1;
  const Value is_earlier = lt(iota(n.graph(), numbers, last), iota(n.graph(), numbers, last - 1));
  const Value is_before = logical_or(gt(other, own), logical_and(eq(other, own), is_earlier));
  const Value rank = reduce_sum(cast(is_before, DType::kI64), {last});  // (..., size)
  // The element of rank r goes to place r of the result.
  Shape places = x.shape();
  places.insert(places.end() - 1, k);
  const Value has_rank =
      eq(iota(n.graph(), {DType::kI64, places}, last - 1), broadcast(reshape(rank, row), places));
  const Value index = argmax(cast(has_rank, DType::kI32), last);  // (..., k)
  const int64_t rows = x.type().elements() / size;
  const Value flat = reshape(index, {rows, k}) +
                     iota(n.graph(), {DType::kI64, {rows, k}}, 0) * static_cast<double>(size);
  const Value values = reshape(gather(reshape(x, {-1}), flat, 0), index.shape());
  n.give(0, axis_from_end(values, axis));
  n.give(1, axis_from_end(index, axis));
}

// ---- what is known alone ----

void non_zero(NodeContext& n) {
  const Known* known = n.known(0);
  check(known != nullptr, "how many elements it gives is data of a run");
  check(known->elements() <= kMostIndices, "it looks at {} elements", known->elements());
  const Shape shape = n.rank(0) == 0 ? Shape{1} : n.shape(0);
  const std::vector<int64_t> strides = strides_of(shape);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < known->elements(); ++i)
    if (known->at(i) != 0.0) found.push_back(i);
  std::vector<int64_t> indices;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    for (const int64_t i : found) indices.push_back(i / strides[axis] % shape[axis]);
  n.give(Known::of(indices).reshaped({std::ssize(shape), std::ssize(found)}));
}

void compress(NodeContext& n) {
  const Known* condition = n.known(1);
  check(condition != nullptr, "how many elements it gives is data of a run");
  check(condition->elements() <= kMostIndices, "it looks at {} elements", condition->elements());
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < condition->elements(); ++i)
    if (condition->at(i) != 0.0) indices.push_back(i);
  const bool is_flat = !n.has_attribute("axis");
  const int64_t axis = is_flat ? 0 : normalize_axis(n.integer("axis"), n.rank(0), "axis");
  Shape shape = is_flat ? Shape{checked_elements(n.dtype(0), n.shape(0), "compress")} : n.shape(0);
  check(indices.empty() || indices.back() < shape[static_cast<size_t>(axis)],
        "its condition is longer than the axis");
  if (indices.empty()) {
    shape[static_cast<size_t>(axis)] = 0;
    return n.give(Known::empty(n.dtype(0), std::move(shape)));
  }
  n.give(take(n, reshape(n.value(0), shape), indices, axis));
}

// ---- along an axis ----

// Sums or products of all elements up to each, by doubling distances (Hillis and Steele, "Data
// parallel algorithms", 1986).
template <bool kProducts>
void cumulative(NodeContext& n) {
  const double neutral = kProducts ? 1.0 : 0.0;
  const int64_t axis = normalize_axis(n.whole(1, "axis"), n.rank(0), "axis");
  const bool is_reverse = n.integer("reverse", 0) != 0;
  Value x = is_reverse ? reversed(n, n.value(0), axis) : n.value(0);
  const int64_t size = x.dim(axis);
  const auto shifted = [&](Value y, int64_t by) {
    std::vector<int64_t> low(static_cast<size_t>(y.rank()), 0);
    const std::vector<int64_t> high = low;
    low[static_cast<size_t>(axis)] = by;
    if (by == size) return constant_like(y, neutral);
    return pad(slice(y, axis, 0, size - by), low, high, neutral);
  };
  if (n.integer("exclusive", 0) != 0) x = shifted(x, 1);
  for (int64_t by = 1; by < size; by *= 2) x = kProducts ? x * shifted(x, by) : x + shifted(x, by);
  n.give(is_reverse ? reversed(n, x, axis) : x);
}

// Each row of the batch has a length: so many of its first elements come in the other order.
void reverse_sequence(NodeContext& n) {
  const int64_t time = normalize_axis(n.integer("time_axis", 0), n.rank(0), "time_axis");
  const int64_t batch = normalize_axis(n.integer("batch_axis", 1), n.rank(0), "batch_axis");
  check(time != batch && n.rank(1) == 1, "its axes are {} and {}", time, batch);
  const TensorType type{DType::kI64, n.shape(0)};
  Shape row(n.shape(0).size(), 1);
  row[static_cast<size_t>(batch)] = n.shape(0)[static_cast<size_t>(batch)];
  const Value lengths = broadcast(reshape(cast(n.value(1), DType::kI64), row), type.shape);
  const Value at = iota(n.graph(), type, time);
  const Value from = where(lt(at, lengths), lengths - 1.0 - at, at);
  const Value numbers = element_numbers(from, n.shape(0), time);
  n.give(as_numbers(n.value(0), [&](Value x) { return gather(reshape(x, {-1}), numbers, 0); }));
}

constexpr OpRow kIndexOps[] = {
    {"ArgMax", arg_extreme<true>},
    {"ArgMin", arg_extreme<false>},
    {"Compress", compress},
    {"CumProd", cumulative<true>},
    {"CumSum", cumulative<false>},
    {"Gather", gather_of},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"NonZero", non_zero},
    {"ReverseSequence", reverse_sequence},
    {"Scatter", scatter_elements},
    {"ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd},
    {"TopK", top_k},
};

}  // namespace

std::span<const OpRow> index_ops() { return kIndexOps; }

}  // namespace ridge::onnx
