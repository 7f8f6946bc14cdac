#include "ridge/export/onnx/messages.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "ridge/import/onnx/elements.h"

namespace ridge::onnx {
namespace {

using protozero::pbf_writer;

constexpr size_t kPieceBytes = size_t{1} << 20;

// Numbers of AttributeProto.AttributeType.
enum AttributeType {
  kFloatAttribute = 1,
  kIntAttribute = 2,
  kTextAttribute = 3,
  kIntsAttribute = 7
};

void add_text(pbf_writer& to, uint32_t field, std::string_view text) {
  to.add_bytes(field, text.data(), text.size());
}

void add_entry(pbf_writer& to, std::string_view key, std::string_view value) {
  pbf_writer entry(to, 13);
  add_text(entry, 1, key);
  add_text(entry, 2, value);
}

// An attribute: its name, what `add` says, and its type.
template <typename Add>
void add_attribute(std::string& bytes, std::string_view name, AttributeType type, Add&& add) {
  pbf_writer to(bytes);
  pbf_writer attribute(to, 5);
  add_text(attribute, 1, name);
  add(attribute);
  attribute.add_enum(20, type);
}

}  // namespace

AttributeList& AttributeList::integer(std::string_view name, int64_t value) {
  add_attribute(bytes_, name, kIntAttribute, [&](pbf_writer& to) { to.add_int64(3, value); });
  return *this;
}

AttributeList& AttributeList::number(std::string_view name, double value) {
  add_attribute(bytes_, name, kFloatAttribute, [&](pbf_writer& to) {
    to.add_float(2, static_cast<float>(value));
  });
  return *this;
}

AttributeList& AttributeList::integers(std::string_view name, std::span<const int64_t> values) {
  add_attribute(bytes_, name, kIntsAttribute, [&](pbf_writer& to) {
    for (const int64_t value : values) to.add_int64(8, value);
  });
  return *this;
}

AttributeList& AttributeList::text(std::string_view name, std::string_view value) {
  add_attribute(bytes_, name, kTextAttribute, [&](pbf_writer& to) { add_text(to, 4, value); });
  return *this;
}

std::string node_message(const WrittenNode& node) {
  std::string message;
  pbf_writer to(message);
  for (const std::string& input : node.inputs) to.add_string(1, input);
  for (const std::string& output : node.outputs) to.add_string(2, output);
  to.add_string(3, node.name);
  to.add_string(4, node.op);
  return message + node.attributes;
}

std::string value_message(const DataSpec& spec) {
  std::string shape;
  pbf_writer dims(shape);
  for (const Dim& dim : spec.dims) {
    pbf_writer each(dims, 1);
    if (dim.name.empty())
      each.add_int64(1, dim.size);
    else
      each.add_string(2, dim.name);
  }
  std::string tensor, type, message;
  pbf_writer of_tensor(tensor), of_type(type), to(message);
  of_tensor.add_enum(1, static_cast<int32_t>(onnx_type_of(spec.dtype)));
  of_tensor.add_message(2, shape);
  of_type.add_message(1, tensor);
  to.add_string(1, spec.name);
  to.add_message(2, type);
  return message;
}

void TensorMessage::put_inside(Bytes raw) {
  head += length_prefix(9, raw.size());
  elements = raw;
}

void TensorMessage::put_outside(const std::string& data, size_t offset, size_t length) {
  pbf_writer to(head);
  add_entry(to, "location", data);
  add_entry(to, "offset", fmt::format("{}", offset));
  add_entry(to, "length", fmt::format("{}", length));
  to.add_enum(14, 1);  // EXTERNAL
}

TensorMessage tensor_message(const std::string& name, const TensorType& type) {
  TensorMessage message;
  pbf_writer to(message.head);
  to.add_packed_int64(1, type.shape.begin(), type.shape.end());
  to.add_int32(2, static_cast<int32_t>(onnx_type_of(type.dtype)));
  to.add_string(8, name);
  return message;
}

std::string length_prefix(uint32_t field, size_t bytes) {
  std::string prefix;
  const auto append = [&](uint64_t value) {
    for (; value >= 0x80; value >>= 7) prefix += static_cast<char>(value | 0x80);
    prefix += static_cast<char>(value);
  };
  append(uint64_t{field} << 3 | 2);
  append(bytes);
  return prefix;
}

void give(ByteSink sink, Bytes bytes) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kPieceBytes)))
    sink(bytes.first(std::min(bytes.size(), kPieceBytes)));
}

}  // namespace ridge::onnx
