// Imports a model, runs it on the CPU, and gives its outputs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ridge/base/tensor.h"
#include "ridge/import/onnx/onnx_model.h"
#include "ridge/run/evaluate.h"

namespace ridge::test {

/// A model of those bytes.
OnnxModel model_of(std::string bytes);

/// The outputs for the inputs; named dimensions have the sizes that these have.
NamedTensors run_model(const OnnxModel& model,
                       const NamedTensors& inputs,
                       const NamedTensors& fixed = {},
                       ConvNorms norms = ConvNorms::kFolded);

/// A tensor of those elements.
Tensor tensor_of(TensorType type, const std::vector<double>& elements);
std::vector<double> elements_of(const Tensor& tensor);

}  // namespace ridge::test
