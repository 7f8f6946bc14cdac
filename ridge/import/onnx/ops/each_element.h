// Ops that treat each element by itself: they compute in the order of axes in which their inputs
// stand, so that a chain of them behind a convolution moves nothing.
#pragma once

#include <functional>
#include <vector>

#include "ridge/import/onnx/node_context.h"

namespace ridge::onnx {

/// Gives result 0: `apply` of all inputs, which it broadcasts.
void each_element(NodeContext& n, const std::function<Value(const std::vector<Value>&)>& apply);
/// The same of the first input alone.
void each_element(NodeContext& n, const std::function<Value(Value)>& apply);

/// A value of the dtype of `like`: the input where it is there (a scalar, or known), else the
/// number.
Value scalar_or(NodeContext& n, size_t input, Value like, double fallback);

}  // namespace ridge::onnx
