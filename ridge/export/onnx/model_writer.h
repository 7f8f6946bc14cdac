// An ONNX model to be written, and its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ridge/export/onnx/data_file.h"
#include "ridge/export/onnx/messages.h"

namespace ridge::onnx {

struct WrittenModel {
  int64_t opset = 0;
  std::vector<WrittenNode> nodes;
  std::map<std::string, Known> tensors;  ///< Initializers, by name.
  std::vector<DataSpec> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

/// Writes the model to `path`. With more than `most_bytes` of tensors the large ones go to a file
/// PATH.CHECKSUM.data beside it, each at a whole page, and its name is returned; else nothing is,
/// and all is in one file. At any time, also where the process is killed, the model that has the
/// name is whole, with the data that it names: those of the model before it are removed last. On
/// any failure UserError, and the model is as it was.
std::string write_model(const WrittenModel& model,
                        const std::filesystem::path& path,
                        int64_t most_bytes = kMostBytesInside);

}  // namespace ridge::onnx
