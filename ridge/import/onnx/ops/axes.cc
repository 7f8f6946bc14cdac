#include "ridge/import/onnx/ops/axes.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"

namespace ridge::onnx {

std::vector<int64_t> normalized_axes(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t& axis : axes) axis = normalize_axis(axis, rank, "axes");
  std::sort(axes.begin(), axes.end());
  check(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "an axis is named twice");
  return axes;
}

std::vector<int64_t> image_axes(const std::vector<int64_t>& axes) {
  std::vector<int64_t> moved;
  for (const int64_t axis : axes) moved.push_back(kImageAxis[axis]);
  return moved;
}

Value take(NodeContext& n, Value x, const std::vector<int64_t>& indices, int64_t axis) {
  check(!indices.empty(), "nothing is taken of an axis");
  const Value places = n.place(Known::of(indices), fmt::format("indices{}", axis));
  if (x.dtype() != DType::kBool) return gather(x, places, axis);
  return cast(gather(cast(x, DType::kU8), places, axis), DType::kBool);
}

Value reversed(NodeContext& n, Value x, int64_t axis) {
  check(x.dim(axis) <= kMostIndices, "an axis of {} is too long", x.dim(axis));
  std::vector<int64_t> indices(static_cast<size_t>(x.dim(axis)));
  std::iota(indices.rbegin(), indices.rend(), 0);
  return take(n, x, indices, axis);
}

}  // namespace ridge::onnx
