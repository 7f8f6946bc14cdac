// ONNX models as bytes, written by hand: what the tests read was made by nobody's library.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::test {

/// A protobuf message.
class ProtoBytes {
 public:
  ProtoBytes& number(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  ProtoBytes& text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtoBytes& message(int field, const ProtoBytes& value) { return text(field, value.bytes_); }
  ProtoBytes& real(int field, float value) {
    key(field, 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire) {
    varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
  }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// ---- parts of a model ----

constexpr int kFloat = 1, kInt32 = 6, kInt64 = 7, kBool = 9;

/// A tensor's type, with sizes and names of sizes: {"N", 3}.
struct NamedSize {
  NamedSize(int64_t size) : size(size) {}
  NamedSize(const char* name) : name(name) {}
  int64_t size = 0;
  std::string name;
};

inline ProtoBytes value_bytes(std::string_view name,
                              int element_type,
                              const std::vector<NamedSize>& sizes) {
  ProtoBytes shape;
  for (const NamedSize& size : sizes) {
    ProtoBytes dim;
    size.name.empty() ? dim.number(1, static_cast<uint64_t>(size.size)) : dim.text(2, size.name);
    shape.message(1, dim);
  }
  const ProtoBytes tensor =
      ProtoBytes().number(1, static_cast<uint64_t>(element_type)).message(2, shape);
  return ProtoBytes().text(1, name).message(2, ProtoBytes().message(1, tensor));
}

/// A tensor with raw elements.
template <typename T>
ProtoBytes tensor_bytes(std::string_view name,
                        int element_type,
                        const std::vector<int64_t>& dims,
                        const std::vector<T>& elements) {
  ProtoBytes tensor;
  for (const int64_t dim : dims) tensor.number(1, static_cast<uint64_t>(dim));
  tensor.number(2, static_cast<uint64_t>(element_type)).text(8, name);
  return tensor.text(9,
                     {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)});
}

inline ProtoBytes floats_bytes(std::string_view name,
                               const std::vector<int64_t>& dims,
                               const std::vector<float>& elements) {
  return tensor_bytes(name, kFloat, dims, elements);
}
inline ProtoBytes integers_bytes(std::string_view name, const std::vector<int64_t>& elements) {
  return tensor_bytes(name, kInt64, {std::ssize(elements)}, elements);
}

inline ProtoBytes int_attribute(std::string_view name, int64_t value) {
  return ProtoBytes().text(1, name).number(3, static_cast<uint64_t>(value)).number(20, 2);
}
inline ProtoBytes ints_attribute(std::string_view name, const std::vector<int64_t>& values) {
  ProtoBytes attribute;
  attribute.text(1, name);
  for (const int64_t value : values) attribute.number(8, static_cast<uint64_t>(value));
  return attribute.number(20, 7);
}
inline ProtoBytes tensor_attribute(std::string_view name, const ProtoBytes& tensor) {
  return ProtoBytes().text(1, name).message(5, tensor).number(20, 4);
}
inline ProtoBytes graph_attribute(std::string_view name, const ProtoBytes& graph) {
  return ProtoBytes().text(1, name).message(6, graph).number(20, 5);
}

inline ProtoBytes node_bytes(std::string_view op,
                             const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs,
                             const std::vector<ProtoBytes>& attributes = {},
                             std::string_view name = {}) {
  ProtoBytes node;
  for (const std::string& input : inputs) node.text(1, input);
  for (const std::string& output : outputs) node.text(2, output);
  if (!name.empty()) node.text(3, name);
  node.text(4, op);
  for (const ProtoBytes& attribute : attributes) node.message(5, attribute);
  return node;
}

struct GraphParts {
  std::vector<ProtoBytes> nodes, initializers, inputs, outputs;
};

inline ProtoBytes graph_bytes(const GraphParts& parts) {
  ProtoBytes graph;
  for (const ProtoBytes& node : parts.nodes) graph.message(1, node);
  graph.text(2, "graph");
  for (const ProtoBytes& tensor : parts.initializers) graph.message(5, tensor);
  for (const ProtoBytes& input : parts.inputs) graph.message(11, input);
  for (const ProtoBytes& output : parts.outputs) graph.message(12, output);
  return graph;
}

/// The bytes of a whole model.
inline std::string model_bytes(const GraphParts& parts, int64_t opset = 17) {
  return ProtoBytes()
      .number(1, 8)
      .message(7, graph_bytes(parts))
      .message(8, ProtoBytes().text(1, "").number(2, static_cast<uint64_t>(opset)))
      .bytes();
}

}  // namespace ridge::test
