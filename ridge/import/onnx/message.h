// Fields of one protobuf message, by protozero. It asserts what it is asked for: here a field of
// another wire type than the format says is a UserError.
#pragma once

#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/io/file.h"

namespace ridge::onnx {

/// Functions throw UserError for another wire type, and protozero::exception for bytes that end too
/// early or are no field.
class Message {
 public:
  explicit Message(Bytes bytes)
      : reader_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  /// Goes to the next field; false at the end. A field that was not read is skipped.
  bool next() {
    if (!is_read_) reader_.skip();
    is_read_ = true;
    if (!reader_.next()) return false;
    is_read_ = false;
    return true;
  }
  uint32_t field() const { return reader_.tag(); }

  Bytes bytes() {
    expect(protozero::pbf_wire_type::length_delimited);
    const protozero::data_view view = reader_.get_view();
    return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
  }
  std::string text() { return std::string(as_text(bytes())); }
  int64_t integer() {
    expect(protozero::pbf_wire_type::varint);
    return reader_.get_int64();
  }
  float number() {
    expect(protozero::pbf_wire_type::fixed32);
    return reader_.get_float();
  }

  // A repeated field of numbers comes packed, or one by one.

  void append(std::vector<int64_t>& to) {
    if (!is_packed()) return to.push_back(integer());
    is_read_ = true;
    for (const int64_t value : reader_.get_packed_int64()) to.push_back(value);
  }
  void append(std::vector<float>& to) {
    if (!is_packed()) return to.push_back(number());
    is_read_ = true;
    for (const float value : reader_.get_packed_float()) to.push_back(value);
  }
  void append(std::vector<double>& to) {
    if (!is_packed()) {
      expect(protozero::pbf_wire_type::fixed64);
      return to.push_back(reader_.get_double());
    }
    is_read_ = true;
    for (const double value : reader_.get_packed_double()) to.push_back(value);
  }

 private:
  bool is_packed() const {
    return reader_.wire_type() == protozero::pbf_wire_type::length_delimited;
  }
  void expect(protozero::pbf_wire_type type) {
    check(reader_.wire_type() == type,
          "field {} has wire type {}; expected {}",
          reader_.tag(),
          static_cast<int>(reader_.wire_type()),
          static_cast<int>(type));
    is_read_ = true;
  }

  protozero::pbf_reader reader_;
  bool is_read_ = true;
};

}  // namespace ridge::onnx
