// A model of ours as an ONNX model: its graph for all sizes of its named dimensions, and its
// weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ridge/export/onnx/model_writer.h"
#include "ridge/graph/model_source.h"
#include "ridge/io/safetensors.h"

namespace ridge {

struct OnnxExportOptions {
  static constexpr int64_t kDefaultOpset = 17;
  int64_t opset = kDefaultOpset;
  Binding sizes = {};                                  ///< Sizes of dimensions that shall have one.
  int64_t most_bytes_inside = onnx::kMostBytesInside;  ///< See write_model().
};

struct OnnxExportResult {
  std::vector<DataSpec> inputs = {}, outputs = {};
  int64_t nodes = 0;
  int64_t weight_bytes = 0;
  std::string data_file = {};  ///< The file that the weights went to; empty: all is in one.
};

/// Writes the model to `path`. Tensors of `weights` have the names of the source's state, and keep
/// them; images keep the order (N, H, W, C) in inputs and outputs. UserError that lists all ops
/// that ONNX has not, for a version of operators that is not written, and as SizedGraph and
/// write_model() have it; then there is no new file.
OnnxExportResult export_onnx(const ModelSource& source,
                             const SafetensorsView& weights,
                             const std::map<std::string, std::string>& metadata,
                             const std::filesystem::path& path,
                             const OnnxExportOptions& options = {});

}  // namespace ridge
