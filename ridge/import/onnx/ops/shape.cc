// Operators that move elements: another shape, another order of axes, parts and repetitions.
#include "ridge/graph/ops/shape.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

// The input under another shape of as many elements; what is known stays known.
void give_reshaped(NodeContext& n, Shape shape) {
  const int64_t elements = checked_elements(n.dtype(0), shape, "reshape");
  check(elements == checked_elements(n.dtype(0), n.shape(0), "reshape"),
        "{} has not the elements of {}",
        to_string(n.shape(0)),
        to_string(shape));
  if (const Known* known = n.known(0)) return n.give(known->reshaped(std::move(shape)));
  n.give(ridge::reshape(n.value(0), std::move(shape)));
}

void reshape(NodeContext& n) {
  Shape shape = n.integers(1, "shape");
  const Shape& from = n.shape(0);
  const bool keeps_zero = n.integer("allowzero", 0) != 0;
  int64_t open = -1, known = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !keeps_zero) {
      check(i < from.size(), "size {} of the shape is that of an axis which is not there", i);
      shape[i] = from[i];
    }
    if (shape[i] == -1) {
      check(open < 0, "two sizes of the shape are open");
      open = static_cast<int64_t>(i);
    } else {
      check(shape[i] >= 0 && !__builtin_mul_overflow(known, shape[i], &known),
            "the shape is {}",
            to_string(shape));
    }
  }
  const int64_t elements = checked_elements(n.dtype(0), from, "reshape");
  if (open >= 0) {
    check(known > 0 && elements % known == 0,
          "{} does not fit the shape {}",
          to_string(from),
          to_string(shape));
    shape[static_cast<size_t>(open)] = elements / known;
  }
  give_reshaped(n, std::move(shape));
}

int64_t product(const Shape& shape, int64_t first, int64_t last) {
  return std::accumulate(
      shape.begin() + first, shape.begin() + last, int64_t{1}, std::multiplies<>());
}

void flatten(NodeContext& n) {
  const int64_t rank = n.rank(0);
  int64_t axis = n.integer("axis", 1);
  check(axis >= -rank && axis <= rank, "its axis is {} of {} dimensions", axis, rank);
  if (axis < 0) axis += rank;
  give_reshaped(n, {product(n.shape(0), 0, axis), product(n.shape(0), axis, rank)});
}

void squeeze(NodeContext& n) {
  std::vector<int64_t> axes = n.list_or_input("axes", 1);
  if (axes.empty())
    for (int64_t i = 0; i < n.rank(0); ++i)
      if (n.shape(0)[static_cast<size_t>(i)] == 1) axes.push_back(i);
  axes = normalized_axes(std::move(axes), n.rank(0));
  Shape shape = n.shape(0);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    check(shape[static_cast<size_t>(*axis)] == 1, "axis {} has not size 1", *axis);
    shape.erase(shape.begin() + *axis);
  }
  give_reshaped(n, std::move(shape));
}

void unsqueeze(NodeContext& n) {
  const std::vector<int64_t> axes = n.list_or_input("axes", 1);
  check(axes.size() + n.shape(0).size() <= kMaxRank, "the result has too many dimensions");
  const auto sorted = normalized_axes(axes, n.rank(0) + std::ssize(axes));
  Shape shape = n.shape(0);
  for (const int64_t axis : sorted) shape.insert(shape.begin() + axis, 1);
  give_reshaped(n, std::move(shape));
}

void transpose(NodeContext& n) {
  const int64_t rank = n.rank(0);
  std::vector<int64_t> perm = n.list("perm");
  if (perm.empty())
    for (int64_t i = rank; i-- > 0;) perm.push_back(i);
  check(std::ssize(perm) == rank && normalized_axes(perm, rank).size() == perm.size(),
        "it permutes {} of {} axes",
        perm.size(),
        rank);
  for (int64_t& axis : perm) axis = normalize_axis(axis, rank, "perm");
  if (const Known* known = n.known(0)) return n.give(known->transposed(perm));
  if (n.is_image(0)) return n.give(ridge::transpose(n.image(0), image_axes(perm)));
  if (perm == std::vector<int64_t>{0, 3, 1, 2}) return n.give_image(0, n.value(0));
  n.give(ridge::transpose(n.value(0), perm));
}

void expand(NodeContext& n) {
  const Shape asked = n.integers(1, "shape");
  check(asked.size() <= kMaxRank, "the shape has {} dimensions", asked.size());
  Shape shape = n.shape(0);
  if (shape.size() < asked.size()) shape.insert(shape.begin(), asked.size() - shape.size(), 1);
  for (size_t i = 0; i < asked.size(); ++i) {
    int64_t& size = shape[shape.size() - asked.size() + i];
    check(size == 1 || asked[i] == 1 || asked[i] == size,
          "{} is not broadcast to {}",
          to_string(n.shape(0)),
          to_string(asked));
    if (size == 1) size = asked[i];
  }
  if (checked_elements(n.dtype(0), shape, "expand") == 0)
    return n.give(Known::empty(n.dtype(0), std::move(shape)));
  n.give(broadcast(n.value(0), std::move(shape)));
}

void tile(NodeContext& n) {
  constexpr int64_t kMostRepeats = 1 << 16;
  const std::vector<int64_t> repeats = n.integers(1, "repeats");
  check(std::ssize(repeats) == n.rank(0), "it repeats {} of {} axes", repeats.size(), n.rank(0));
  Shape shape = n.shape(0);
  for (size_t i = 0; i < repeats.size(); ++i)
    check(repeats[i] >= 0 && !__builtin_mul_overflow(shape[i], repeats[i], &shape[i]),
          "it repeats axis {} {} times",
          i,
          repeats[i]);
  if (checked_elements(n.dtype(0), shape, "tile") == 0)
    return n.give(Known::empty(n.dtype(0), std::move(shape)));
  Value x = n.value(0);
  for (size_t i = 0; i < repeats.size(); ++i)
    if (repeats[i] > 1 && x.dim(static_cast<int64_t>(i)) == 1) {
      Shape wide = x.shape();
      wide[i] = repeats[i];
      x = broadcast(x, wide);
    } else if (repeats[i] > 1) {
      check(repeats[i] <= kMostRepeats, "it repeats axis {} {} times", i, repeats[i]);
      x = concat(std::vector<Value>(static_cast<size_t>(repeats[i]), x), static_cast<int64_t>(i));
    }
  n.give(x);
}

void concat_of(NodeContext& n) {
  check(n.inputs() > 0, "it has no inputs");
  const int64_t axis = normalize_axis(n.integer("axis"), n.rank(0), "axis");
  bool as_image = false;
  Shape shape = n.shape(0);
  shape[static_cast<size_t>(axis)] = 0;
  std::vector<size_t> parts;  // those that have elements
  for (size_t i = 0; i < n.inputs(); ++i) {
    check(n.rank(i) == n.rank(0), "inputs have {} and {} dimensions", n.rank(0), n.rank(i));
    as_image = as_image || n.is_image(i);
    int64_t& size = shape[static_cast<size_t>(axis)];
    check(!__builtin_add_overflow(size, n.shape(i)[static_cast<size_t>(axis)], &size),
          "the result is too large");
    if (checked_elements(n.dtype(i), n.shape(i), "concat") > 0) parts.push_back(i);
  }
  if (parts.empty()) return n.give(Known::empty(n.dtype(0), std::move(shape)));
  if (parts.size() == 1) return n.give(0, n.datum(parts[0]));
  std::vector<Value> values;
  for (const size_t i : parts) values.push_back(as_image ? n.image(i) : n.value(i));
  as_image ? n.give_image(0, concat(std::move(values), kImageAxis[axis]))
           : n.give(concat(std::move(values), axis));
}

// The elements first, first + step, ... of an axis, `count` of them.
struct Range {
  int64_t first = 0, count = 0, step = 1;
};

Value ranged(NodeContext& n, Value x, int64_t axis, const Range& range) {
  const int64_t last = range.first + (range.count - 1) * range.step;
  if (range.step > 0) return slice(x, axis, range.first, last + 1, range.step);
  check(range.count <= kMostIndices, "an axis of {} is too long", range.count);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < range.count; ++i) indices.push_back(range.first + i * range.step);
  return take(n, x, indices, axis);
}

// The elements that a slice of an axis names, by ONNX's rules.
Range range_of(int64_t start, int64_t end, int64_t step, int64_t size) {
  constexpr int64_t kLong = int64_t{1} << 50;  // longer than any axis
  check(step != 0, "a step is 0");
  if (size == 0) return {};
  step = std::clamp(step, -kLong, kLong);
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, step > 0 ? size : size - 1);
  end = std::clamp<int64_t>(end, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
  const int64_t length = step > 0 ? end - start : start - end;
  const int64_t stride = std::abs(step);
  return {start, size == 0 || length <= 0 ? 0 : (length + stride - 1) / stride, step};
}

void slice_of(NodeContext& n) {
  const bool by_attributes = n.opset() < 10;
  const auto starts = by_attributes ? n.list("starts") : n.integers(1, "starts");
  const auto ends = by_attributes ? n.list("ends") : n.integers(2, "ends");
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  axes = by_attributes ? n.list("axes", axes) : n.has(3) ? n.integers(3, "axes") : axes;
  if (!by_attributes && n.has(4)) steps = n.integers(4, "steps");
  check(
      ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(),
      "starts, ends, axes and steps are not equally many");
  normalized_axes(axes, n.rank(0));
  Shape shape = n.shape(0);
  std::map<int64_t, Range> ranges;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = normalize_axis(axes[i], n.rank(0), "axes");
    int64_t& size = shape[static_cast<size_t>(axis)];
    ranges[axis] = range_of(starts[i], ends[i], steps[i], size);
    size = ranges[axis].count;
  }
  if (checked_elements(n.dtype(0), shape, "slice") == 0)
    return n.give(Known::empty(n.dtype(0), std::move(shape)));
  const bool as_image = n.is_image(0);
  Value x = as_image ? n.image(0) : n.value(0);
  for (const auto& [axis, range] : ranges)
    x = ranged(n, x, as_image ? kImageAxis[axis] : axis, range);
  as_image ? n.give_image(0, x) : n.give(x);
}

void split(NodeContext& n) {
  const int64_t axis = normalize_axis(n.integer("axis", 0), n.rank(0), "axis");
  const int64_t size = n.shape(0)[static_cast<size_t>(axis)];
  std::vector<int64_t> sizes = n.list_or_input("split", 1);
  if (sizes.empty()) {
    const auto parts = n.integer("num_outputs", static_cast<int64_t>(n.outputs()));
    check(parts >= 1 && parts <= std::max<int64_t>(size, 1) && parts <= kMostIndices,
          "it has {} parts",
          parts);
    const int64_t each = (size + parts - 1) / parts;
    for (int64_t i = 0, left = size; i < parts; ++i, left -= each)
      sizes.push_back(std::clamp<int64_t>(left, 0, each));
  }
  check(sizes.size() >= n.outputs(), "it splits into {} of {}", sizes.size(), n.outputs());
  int64_t first = 0;
  for (size_t i = 0; i < n.outputs(); first += sizes[i++]) {
    check(sizes[i] >= 0 && sizes[i] <= size - first, "part {} has size {}", i, sizes[i]);
    Shape shape = n.shape(0);
    shape[static_cast<size_t>(axis)] = sizes[i];
    if (checked_elements(n.dtype(0), shape, "split") == 0)
      n.give(i, Known::empty(n.dtype(0), std::move(shape)));
    else if (n.is_image(0))
      n.give_image(i, slice(n.image(0), kImageAxis[axis], first, first + sizes[i]));
    else
      n.give(i, slice(n.value(0), axis, first, first + sizes[i]));
  }
}

// (N, C, H, W) with C = b b D: in DCR order (b, b, D), in CRD order (D, b, b).
void depth_to_space(NodeContext& n) {
  const int64_t b = n.integer("blocksize");
  check(n.rank(0) == 4, "its input has {} dimensions", n.rank(0));
  const Shape& s = n.shape(0);
  check(b > 0 && b < 1 << 20 && s[1] % (b * b) == 0, "blocks of {} in {} channels", b, s[1]);
  const std::string mode = n.text("mode", "DCR");
  check(mode == "DCR" || mode == "CRD", "mode '{}' is not known", mode);
  const int64_t depth = s[1] / (b * b);
  const Value x = n.value(0);
  const Value moved =
      mode == "DCR"
          ? ridge::transpose(ridge::reshape(x, {s[0], b, b, depth, s[2], s[3]}), {0, 3, 4, 1, 5, 2})
          : ridge::transpose(ridge::reshape(x, {s[0], depth, b, b, s[2], s[3]}),
                             {0, 1, 4, 2, 5, 3});
  n.give(ridge::reshape(moved, {s[0], depth, s[2] * b, s[3] * b}));
}

void space_to_depth(NodeContext& n) {
  const int64_t b = n.integer("blocksize");
  check(n.rank(0) == 4, "its input has {} dimensions", n.rank(0));
  const Shape& s = n.shape(0);
  check(b > 0 && s[2] % b == 0 && s[3] % b == 0, "blocks of {} in {}", b, to_string(s));
  const Value blocks = ridge::reshape(n.value(0), {s[0], s[1], s[2] / b, b, s[3] / b, b});
  const Value moved = ridge::transpose(blocks, {0, 3, 5, 1, 2, 4});
  n.give(ridge::reshape(moved, {s[0], s[1] * b * b, s[2] / b, s[3] / b}));
}

constexpr OpRow kShapeOps[] = {
    {"Concat", concat_of},
    {"DepthToSpace", depth_to_space},
    {"Expand", expand},
    {"Flatten", flatten},
    {"Reshape", reshape},
    {"Slice", slice_of},
    {"SpaceToDepth", space_to_depth},
    {"Split", split},
    {"Squeeze", squeeze},
    {"Tile", tile},
    {"Transpose", transpose},
    {"Unsqueeze", unsqueeze},
};

}  // namespace

std::span<const OpRow> shape_ops() { return kShapeOps; }

}  // namespace ridge::onnx
