// Products of values that a model writes as integers with a scale (DequantizeLinear).
#pragma once

#include "ridge/graph/ops/conv.h"
#include "ridge/import/onnx/node_context.h"

namespace ridge::onnx {

/// The product in f32 of inputs 0 and 1, where both were made of bytes, by those bytes, plus
/// `bias` (N) unless it is null. The second factor may have a scale for each column. Null where
/// that does not hold, and where the model is imported as written: the results differ from those
/// of a product of floats by what that rounds.
Value product_of_bytes(NodeContext& n, bool transpose_b = false, Value bias = {});

/// The same of a convolution of images, maybe in groups, whose weights may have a scale for each
/// channel of the result; input 2, where it is there, is the bias. The result is an image (N, H, W,
/// C).
Value convolution_of_bytes(NodeContext& n, const WindowFields& window, int64_t groups);

/// The mean over `axes`, which stay with size 1, of input 0, where that was made of bytes by one
/// scale: by their sum. With `is_image` axes and result are those of the image (N, H, W, C). Null
/// where that does not hold, and where the model is imported as written.
Value mean_of_bytes(NodeContext& n, const std::vector<int64_t>& axes, bool is_image);

}  // namespace ridge::onnx
