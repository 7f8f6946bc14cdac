// Axes: how attributes name them, where those of an image lie, and elements picked along them.
#pragma once

#include <vector>

#include "ridge/import/onnx/node_context.h"

namespace ridge::onnx {

/// From 0 to rank - 1, ascending, each once; UserError for others.
std::vector<int64_t> normalized_axes(std::vector<int64_t> axes, int64_t rank);

/// The axes of (N, C, H, W), as they lie in (N, H, W, C).
inline constexpr int64_t kImageAxis[] = {0, 3, 1, 2};
std::vector<int64_t> image_axes(const std::vector<int64_t>& axes);

/// Indices that a builder writes out for one axis.
inline constexpr int64_t kMostIndices = int64_t{1} << 22;

/// The elements at known places along an axis, of any dtype; each index is in range.
Value take(NodeContext& n, Value x, const std::vector<int64_t>& indices, int64_t axis);
/// The elements along an axis from the last to the first.
Value reversed(NodeContext& n, Value x, int64_t axis);

}  // namespace ridge::onnx
