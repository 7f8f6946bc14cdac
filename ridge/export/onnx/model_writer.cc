#include "ridge/export/onnx/model_writer.h"

#include <protozero/pbf_writer.hpp>

namespace ridge::onnx {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_writer;

constexpr std::string_view kProducer = "ridge";

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

// The messages of all tensors. Without a name of `data` they hold all elements.
std::vector<TensorMessage> tensor_messages(const WrittenModel& model,
                                           const std::map<std::string, size_t>& offsets,
                                           const std::string& data) {
  std::vector<TensorMessage> messages;
  for (const auto& [name, tensor] : model.tensors) {
    TensorMessage& message = messages.emplace_back(tensor_message(name, tensor.type()));
    const auto outside = offsets.find(name);
    if (outside == offsets.end())
      message.put_inside(tensor.bytes());
    else
      message.put_outside(data, outside->second, tensor.bytes().size());
  }
  return messages;
}

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

void write_graph(const WrittenModel& model,
                 const std::vector<TensorMessage>& tensors,
                 ByteSink sink) {
  std::string nodes, values;
  pbf_writer of_nodes(nodes), of_values(values);
  for (const WrittenNode& node : model.nodes) of_nodes.add_message(1, node_message(node));
  of_nodes.add_string(2, "ridge");
  for (const DataSpec& input : model.inputs) of_values.add_message(11, value_message(input));
  for (const DataSpec& output : model.outputs) of_values.add_message(12, value_message(output));
  size_t size = nodes.size() + values.size();
  for (const TensorMessage& tensor : tensors)
    size += length_prefix(5, tensor.size()).size() + tensor.size();
  sink(as_bytes(length_prefix(7, size)));
  give(sink, as_bytes(nodes));
  for (const TensorMessage& tensor : tensors) {
    sink(as_bytes(length_prefix(5, tensor.size()) + tensor.head));
    give(sink, tensor.elements);
  }
  give(sink, as_bytes(values));
}

}  // namespace

std::string write_model(const WrittenModel& model, const fs::path& path, int64_t most_bytes) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model.tensors) bytes += std::ssize(tensor.bytes());
  DataFile outside;
  std::map<std::string, size_t> offsets;
  if (bytes > most_bytes)
    for (const auto& [name, tensor] : model.tensors)
      if (tensor.bytes().size() >= kLeastOutside) offsets[name] = outside.add(tensor.bytes());
  return write_with_data(path, outside, [&](const std::string& data, ByteSink sink) {
    const std::vector<TensorMessage> tensors = tensor_messages(model, offsets, data);
    give(sink, as_bytes(model_head(model)));
    write_graph(model, tensors, sink);
  });
}

}  // namespace ridge::onnx
