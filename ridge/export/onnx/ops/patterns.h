// Ops that a few nodes make together, and that ONNX has as one operator. Each function writes that
// for the last of the nodes and returns true; false where the nodes are no such pattern.
#pragma once

#include "ridge/export/onnx/graph_export.h"

namespace ridge::onnx {

/// (x - mean) * (scale * rsqrt(variance + eps)) + shift of images.
bool give_batch_norm(NodeExport& add);
/// A convolution and its bias.
bool give_convolution_with_bias(NodeExport& add);
/// where(y >= 6, 6, y) with y = relu(x).
bool give_relu6(NodeExport& where);
/// A product with a matrix whose rows were made one axis before, and are several again.
bool give_folded_product(NodeExport& reshape);

/// The value of rank 1 that is broadcast along the last axis; null where it is none.
Value channels_of(Value broadcast);

}  // namespace ridge::onnx
