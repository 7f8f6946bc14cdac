// An ONNX model to be written, in parts, and its file. Names of fields are those of onnx.proto3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/data_spec.h"
#include "ridge/import/onnx/known.h"

namespace ridge::onnx {

/// The attributes of a node, encoded.
class AttributeList {
 public:
  AttributeList& integer(std::string_view name, int64_t value);
  AttributeList& number(std::string_view name, double value);
  AttributeList& integers(std::string_view name, std::span<const int64_t> values);
  AttributeList& text(std::string_view name, std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct WrittenNode {
  std::string op = {}, name = {};
  /// Empty: an optional one that is not there.
  std::vector<std::string> inputs = {}, outputs = {};
  std::string attributes = {};  ///< AttributeList::bytes().
};

struct WrittenModel {
  int64_t opset = 0;
  std::vector<WrittenNode> nodes;
  std::map<std::string, Known> tensors;  ///< Initializers, by name.
  std::vector<DataSpec> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

/// Protobuf's own limit for a file is 2 GiB; some readers stop a little before.
inline constexpr int64_t kMostBytesInside = (int64_t{1} << 31) - (int64_t{1} << 26);

/// Writes the model to `path`. With more than `most_bytes` of tensors the large ones go to a file
/// PATH.CHECKSUM.data beside it, each at a whole page, and its name is returned; else nothing is,
/// and all is in one file. At any time, also where the process is killed, the model that has the
/// name is whole, with the data that it names: those of the model before it are removed last. On
/// any failure UserError, and the model is as it was.
std::string write_model(const WrittenModel& model,
                        const std::filesystem::path& path,
                        int64_t most_bytes = kMostBytesInside);

}  // namespace ridge::onnx
