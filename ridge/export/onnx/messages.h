// Messages of ONNX, encoded in parts. Names of fields are those of onnx.proto3.
#pragma once

#include <cstdint>
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

/// The message of a node.
std::string node_message(const WrittenNode& node);
/// The message of the declaration of an input or output (ValueInfoProto).
std::string value_message(const DataSpec& spec);

/// A tensor's message but for its elements, which end it; of one in another file there are none.
struct TensorMessage {
  std::string head;
  Bytes elements = {};

  size_t size() const { return head.size() + elements.size(); }
  /// The elements, in order and little-endian, which must outlive the message, become its end.
  void put_inside(Bytes raw);
  /// They lie in the file `data` of the model's folder.
  void put_outside(const std::string& data, size_t offset, size_t length);
};

/// The message of a tensor that has no elements yet.
TensorMessage tensor_message(const std::string& name, const TensorType& type);

/// The key of a field of bytes, and how many follow.
std::string length_prefix(uint32_t field, size_t bytes);

/// Hands the bytes on in pieces.
void give(ByteSink sink, Bytes bytes);

}  // namespace ridge::onnx
