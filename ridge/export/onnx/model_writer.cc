#include "ridge/export/onnx/model_writer.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "ridge/import/onnx/elements.h"
#include "ridge/io/file.h"

namespace ridge::onnx {
namespace {

using protozero::pbf_writer;

constexpr std::string_view kProducer = "ridge";
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;
/// Smaller tensors stay in the model: shapes and axes are read by those who look at nothing else.
constexpr size_t kLeastOutside = 1024;

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

// The smallest version of the file format that has the operators.
int64_t ir_version(int64_t opset) {
  struct Row {
    int64_t opset, version;
  };
  constexpr Row kVersions[] = {{23, 11}, {21, 10}, {19, 9}, {15, 8}, {12, 7}};
  for (const Row& row : kVersions)
    if (opset >= row.opset) return row.version;
  throw InternalError(fmt::format("no IR version is known for opset {}", opset));
}

// The key of a field of bytes, and how many follow.
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

/// A tensor's message but for its elements, which end it, or lie in the other file.
struct TensorMessage {
  std::string head;
  Bytes elements;

  size_t size() const { return head.size() + elements.size(); }
};

/// A tensor in the file of data.
struct Outside {
  size_t offset = 0;
  Bytes elements;
};

TensorMessage tensor_message(const std::string& name, const Known& tensor) {
  TensorMessage message;
  pbf_writer to(message.head);
  to.add_packed_int64(1, tensor.shape().begin(), tensor.shape().end());
  to.add_int32(2, static_cast<int32_t>(onnx_type_of(tensor.dtype())));
  to.add_string(8, name);
  return message;
}

void add_entry(pbf_writer& to, std::string_view key, std::string_view value) {
  pbf_writer entry(to, 13);
  add_text(entry, 1, key);
  add_text(entry, 2, value);
}

/// The messages of all tensors, and what of them goes to the file of data.
struct Tensors {
  Tensors(const WrittenModel& model, const std::string& data_file) {
    size_t end = 0;
    for (const auto& [name, tensor] : model.tensors) {
      TensorMessage message = tensor_message(name, tensor);
      if (data_file.empty() || tensor.bytes().size() < kLeastOutside) {
        message.head += length_prefix(9, tensor.bytes().size());
        message.elements = tensor.bytes();
      } else {
        const size_t offset = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
        pbf_writer to(message.head);
        add_entry(to, "location", data_file);
        add_entry(to, "offset", fmt::format("{}", offset));
        add_entry(to, "length", fmt::format("{}", tensor.bytes().size()));
        to.add_enum(14, 1);  // EXTERNAL
        outside.push_back({offset, tensor.bytes()});
        end = offset + tensor.bytes().size();
      }
      messages.push_back(std::move(message));
    }
  }

  void write_outside(const std::filesystem::path& path) const {
    stream_file_atomically(path, [&](ByteSink sink) {
      const std::string zeros(kPageBytes, '\0');
      size_t end = 0;
      for (const Outside& each : outside) {
        sink(as_bytes(std::string_view(zeros).substr(0, each.offset - end)));
        give(sink, each.elements);
        end = each.offset + each.elements.size();
      }
    });
  }

  std::vector<TensorMessage> messages;
  std::vector<Outside> outside;
};

// The fields of ModelProto around the graph.
std::string model_head(const WrittenModel& model) {
  std::string head;
  pbf_writer to(head);
  to.add_int64(1, ir_version(model.opset));
  add_text(to, 2, kProducer);
  add_text(to, 3, RIDGE_VERSION);
  {
    pbf_writer opset(to, 8);
    opset.add_string(1, "");
    opset.add_int64(2, model.opset);
  }
  for (const auto& [key, value] : model.metadata) {
    pbf_writer entry(to, 14);
    entry.add_string(1, key);
    entry.add_string(2, value);
  }
  return head;
}

void write_graph(const WrittenModel& model, const Tensors& tensors, ByteSink sink) {
  std::string nodes, values;
  pbf_writer of_nodes(nodes), of_values(values);
  for (const WrittenNode& node : model.nodes) of_nodes.add_message(1, node_message(node));
  of_nodes.add_string(2, "ridge");
  for (const DataSpec& input : model.inputs) of_values.add_message(11, value_message(input));
  for (const DataSpec& output : model.outputs) of_values.add_message(12, value_message(output));
  size_t size = nodes.size() + values.size();
  for (const TensorMessage& tensor : tensors.messages)
    size += length_prefix(5, tensor.size()).size() + tensor.size();
  sink(as_bytes(length_prefix(7, size)));
  give(sink, as_bytes(nodes));
  for (const TensorMessage& tensor : tensors.messages) {
    sink(as_bytes(length_prefix(5, tensor.size()) + tensor.head));
    give(sink, tensor.elements);
  }
  give(sink, as_bytes(values));
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

std::string write_model(const WrittenModel& model,
                        const std::filesystem::path& path,
                        int64_t most_bytes) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model.tensors) bytes += std::ssize(tensor.bytes());
  std::filesystem::path data;
  if (bytes > most_bytes) data = path.string() + ".data";
  const std::string data_file = data.filename().string();
  const Tensors tensors(model, data_file);
  if (!tensors.outside.empty()) tensors.write_outside(data);
  stream_file_atomically(path, [&](ByteSink sink) {
    give(sink, as_bytes(model_head(model)));
    write_graph(model, tensors, sink);
  });
  return tensors.outside.empty() ? std::string() : data.string();
}

}  // namespace ridge::onnx
