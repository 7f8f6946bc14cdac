// Windows of convolutions and pools, as ONNX's attributes describe them.
#pragma once

#include <vector>

#include "ridge/graph/ops/conv.h"
#include "ridge/import/onnx/node_context.h"

namespace ridge::onnx {

/// One entry a spatial axis.
struct WindowAttributes {
  std::vector<int64_t> kernel, stride, dilation;
  std::vector<int64_t> low, high;  ///< Padding before and after the axis.

  size_t axes() const { return kernel.size(); }
  /// Elements of the axis from the first of the kernel to the last.
  int64_t reach(size_t axis) const { return (kernel[axis] - 1) * dilation[axis] + 1; }
  /// Positions along an axis of that size; UserError when there is none.
  int64_t positions(size_t axis, int64_t size, bool rounds_up) const;
  /// The same of two axes, or of one as the second of two.
  WindowFields fields() const;
};

/// The attributes for a kernel of those sizes over the spatial axes of input 0 (N, C, ...).
/// UserError for negative paddings, lists of another length, and sizes that no memory has.
WindowAttributes window_attributes(const NodeContext& n, std::vector<int64_t> kernel);

/// The input (N, C, W) or (N, C, H, W) as an image (N, H, W, C), where a line has height 1; and the
/// result given back in the form of the input.
Value image_of(const NodeContext& n, size_t input);
void give_image_of(NodeContext& n, Value image, int64_t rank);

}  // namespace ridge::onnx
