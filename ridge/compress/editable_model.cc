#include "ridge/compress/editable_model.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "ridge/export/onnx/messages.h"

namespace ridge::compress {
namespace {

// Fields of GraphProto, ModelProto and TensorProto.
constexpr uint32_t kNode = 1, kInitializer = 5, kInput = 11, kOutput = 12, kGraph = 7;
constexpr uint32_t kNodeInput = 1, kNodeOutput = 2;

struct RawField {
  uint32_t number = 0;
  Bytes whole = {};  ///< With its key.
  Bytes value = {};  ///< The content of one that has a length; else empty.
};

// The fields of a message that onnx::parse_model() has read.
std::vector<RawField> fields_of(Bytes message) {
  std::vector<RawField> fields;
  protozero::pbf_reader reader(reinterpret_cast<const char*>(message.data()), message.size());
  const auto left = [&] { return reader.data().size(); };
  for (size_t before = left(); reader.next(); before = left()) {
    RawField field{.number = reader.tag()};
    if (reader.wire_type() == protozero::pbf_wire_type::length_delimited) {
      const protozero::data_view view = reader.get_view();
      field.value = {reinterpret_cast<const std::byte*>(view.data()), view.size()};
    } else {
      reader.skip();
    }
    field.whole = message.subspan(message.size() - before, before - left());
    fields.push_back(field);
  }
  return fields;
}

void append(std::string& to, Bytes bytes) { to += as_text(bytes); }

Part made(std::string message) {
  const auto owner = std::make_shared<const std::string>(std::move(message));
  return {as_bytes(*owner), owner};
}

void append_field(std::string& to, uint32_t number, Bytes value) {
  to += onnx::length_prefix(number, value.size());
  append(to, value);
}

// Calls `visit` with each name that a node reads, and with those that graphs inside of it read.
void visit_reads(const onnx::NodeProto& node,
                 const std::function<void(const std::string&)>& visit) {
  for (const std::string& input : node.inputs) visit(input);
  for (const onnx::Attribute& attribute : node.attributes) {
    if (attribute.graph == nullptr) continue;
    for (const onnx::NodeProto& inner : attribute.graph->nodes) visit_reads(inner, visit);
    for (const onnx::ValueInfo& output : attribute.graph->outputs) visit(output.name);
  }
}

void visit_names(const onnx::NodeProto& node,
                 const std::function<void(const std::string&)>& visit) {
  visit(node.name);
  for (const std::string& output : node.outputs) visit(output);
  visit_reads(node, visit);
  for (const onnx::Attribute& attribute : node.attributes) {
    if (attribute.graph == nullptr) continue;
    for (const onnx::NodeProto& inner : attribute.graph->nodes) visit_names(inner, visit);
    for (const onnx::TensorProto& tensor : attribute.graph->initializers) visit(tensor.name);
    for (const onnx::ValueInfo& input : attribute.graph->inputs) visit(input.name);
  }
}

const onnx::TensorProto* value_of_constant(const onnx::NodeProto& node) {
  if (node.op != "Constant" || !node.domain.empty()) return nullptr;
  for (const onnx::Attribute& attribute : node.attributes)
    if (attribute.name == "value" && attribute.tensor != nullptr) return attribute.tensor.get();
  return nullptr;
}

// A tensor's message without its elements.
std::string head_of(Bytes message) {
  // Elements as lists and raw bytes, and the place of those in other files.
  constexpr uint32_t kElements[] = {4, 5, 6, 7, 9, 10, 11, 13, 14};
  std::string head;
  for (const RawField& field : fields_of(message))
    if (std::ranges::find(kElements, field.number) == std::end(kElements))
      append(head, field.whole);
  return head;
}

}  // namespace

EditableModel::EditableModel(const std::filesystem::path& path)
    : name_(path.string()), path_(path) {
  const auto file = std::make_shared<const MappedFile>(path);
  files_ = std::make_shared<onnx::ElementFiles>(path, file);
  read(file->bytes(), file);
}

EditableModel::EditableModel(Bytes bytes, std::shared_ptr<const void> owner, std::string name)
    : name_(std::move(name)) {
  files_ = std::make_shared<onnx::ElementFiles>(std::filesystem::path(), owner);
  read(bytes, owner);
}

void EditableModel::read(Bytes bytes, const std::shared_ptr<const void>& owner) {
  onnx::ModelProto proto = onnx::parse_model(bytes, name_);
  const auto own = proto.opsets.find("");
  opset_ = own == proto.opsets.end() ? 0 : own->second;
  try {
    files_->check_files(onnx::external_tensors(proto));
    const auto is_external = [](const onnx::TensorProto& tensor) { return tensor.is_external; };
    has_inner_external_ = std::ssize(onnx::external_tensors(proto)) !=
                          std::ranges::count_if(proto.graph.initializers, is_external);
    std::string outer[2];
    std::optional<Bytes> graph;
    // The last graph is the model's, as the importer has it.
    for (const RawField& field : fields_of(bytes)) {
      if (field.number == kGraph)
        graph = field.value;
      else
        append(outer[graph ? 1 : 0], field.whole);
    }
    outer_[0] = made(std::move(outer[0]));
    outer_[1] = made(std::move(outer[1]));
    read_graph(graph.value_or(Bytes{}), proto.graph, owner);
  } catch (const protozero::exception& error) {
    throw UserError(fmt::format("{}: no ONNX model, or a damaged one: {}", name_, error.what()));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", name_, error.message()), error.fix());
  }
}

void EditableModel::read_graph(Bytes graph,
                               onnx::GraphProto& proto,
                               const std::shared_ptr<const void>& owner) {
  for (const RawField& field : fields_of(graph)) {
    const Part part{field.value, owner};
    if (field.number == kNode) {
      nodes_.push_back({std::move(proto.nodes.at(nodes_.size())), part});
    } else if (field.number == kInitializer) {
      tensor_places_[proto.initializers.at(tensors_.size()).name] = tensors_.size();
      tensors_.push_back({std::move(proto.initializers.at(tensors_.size())), part});
    } else if (field.number == kInput) {
      inputs_.push_back({std::move(proto.inputs.at(inputs_.size())), part});
    } else {
      other_.push_back({field.whole, owner});
    }
  }
  outputs_ = std::move(proto.outputs);
  std::set<std::string> results;
  const auto take = [this](const std::string& name) { names_.insert(name); };
  for (const EditableNode& node : nodes_) {
    for (const std::string& output : node.proto.outputs)
      check(output.empty() || results.insert(output).second, "'{}' is made twice", output);
    visit_names(node.proto, take);
  }
  for (const EditableTensor& tensor : tensors_) take(tensor.proto.name);
  for (const EditableInput& input : inputs_) take(input.info.name);
}

std::map<std::string, int> EditableModel::uses() const {
  std::map<std::string, int> uses;
  const auto count = [&uses](const std::string& name) { ++uses[name]; };
  for (const EditableNode& node : nodes_) visit_reads(node.proto, count);
  for (const onnx::ValueInfo& output : outputs_) count(output.name);
  return uses;
}

const onnx::TensorProto* EditableModel::constant(const std::string& name) const {
  if (name.empty()) return nullptr;
  const auto found = tensor_places_.find(name);
  if (found != tensor_places_.end()) return &tensors_[found->second].proto;
  for (const EditableNode& node : nodes_)
    if (node.proto.outputs == std::vector<std::string>{name}) return value_of_constant(node.proto);
  return nullptr;
}

onnx::Known EditableModel::elements(const onnx::TensorProto& tensor) const {
  return named([&] { return files_->read(tensor); });
}

onnx::Known EditableModel::named(FunctionRef<onnx::Known()> read) const {
  try {
    return read();
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", name_, error.message()), error.fix());
  }
}

std::string EditableModel::new_name(const std::string& wish) {
  std::string name = wish;
  for (int number = 2; !names_.insert(name).second; ++number)
    name = fmt::format("{}_{}", wish, number);
  return name;
}

void EditableModel::add_initializer(const std::string& name, const Tensor& tensor) {
  onnx::TensorMessage message = onnx::tensor_message(name, tensor.type());
  message.put_inside({static_cast<const std::byte*>(tensor.data()), tensor.bytes()});
  append(message.head, message.elements);
  const Part part = made(std::move(message.head));
  check_internal(
      tensor_places_.emplace(name, tensors_.size()).second, "two initializers are '{}'", name);
  names_.insert(name);
  tensors_.push_back({onnx::parse_tensor(part.bytes, name), part});
}

void EditableModel::remove_unused(const std::set<std::string>& names) {
  const std::map<std::string, int> used = uses();
  const auto is_unused = [&](const std::string& name) {
    return names.contains(name) && !used.contains(name);
  };
  std::erase_if(tensors_,
                [&](const EditableTensor& tensor) { return is_unused(tensor.proto.name); });
  std::erase_if(nodes_, [&](const EditableNode& node) {
    return node.proto.op == "Constant" && node.proto.outputs.size() == 1 &&
           is_unused(node.proto.outputs[0]);
  });
  // Older files declare initializers as inputs, too: without its value one would have to be given.
  std::erase_if(inputs_, [&](const EditableInput& input) {
    return is_unused(input.info.name) && tensor_places_.contains(input.info.name);
  });
  index_tensors();
}

void EditableModel::index_tensors() {
  tensor_places_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) tensor_places_[tensors_[i].proto.name] = i;
}

void EditableModel::add_input(const DataSpec& spec) {
  names_.insert(spec.name);
  onnx::ValueInfo info;
  info.name = spec.name;
  info.element_type = onnx::onnx_type_of(spec.dtype);
  info.has_shape = true;
  inputs_.push_back({std::move(info), made(onnx::value_message(spec))});
}

EditableModel EditableModel::slice(std::vector<EditableNode> nodes,
                                   const std::vector<DataSpec>& inputs) const {
  std::set<std::string> read;
  for (const EditableNode& node : nodes)
    visit_reads(node.proto, [&](const std::string& name) { read.insert(name); });
  EditableModel part = *this;
  std::erase_if(part.nodes_, [&](const EditableNode& node) {
    return value_of_constant(node.proto) == nullptr || !read.contains(node.proto.outputs.at(0));
  });
  std::ranges::move(nodes, std::back_inserter(part.nodes_));
  std::erase_if(part.tensors_,
                [&](const EditableTensor& tensor) { return !read.contains(tensor.proto.name); });
  part.index_tensors();
  part.inputs_.clear();
  part.outputs_.clear();
  part.other_.clear();
  for (const DataSpec& input : inputs) part.add_input(input);
  return part;
}

std::string EditableModel::wrapped(const GiveTensor& tensor, const GiveInput& input) const {
  std::string graph, model;
  for (const EditableNode& node : nodes_) append_field(graph, kNode, node.part.bytes);
  for (size_t i = 0; i < tensors_.size(); ++i) tensor(graph, i);
  for (const EditableInput& each : inputs_) input(graph, each);
  for (const Part& other : other_) append(graph, other.bytes);
  append(model, outer_[0].bytes);
  append_field(model, kGraph, as_bytes(graph));
  append(model, outer_[1].bytes);
  return model;
}

void EditableModel::give_tensor(std::string& graph, size_t i) const {
  append_field(graph, kInitializer, tensors_[i].part.bytes);
}

void EditableModel::give_input(std::string& graph, const EditableInput& input) {
  append_field(graph, kInput, input.part.bytes);
}

std::string EditableModel::bytes() const {
  return wrapped([this](std::string& graph, size_t i) { give_tensor(graph, i); }, give_input);
}

std::string EditableModel::bytes_to_run(const std::map<std::string, Shape>& inputs,
                                        const std::vector<std::string>& more_outputs) const {
  EditableModel shown = *this;
  for (const std::string& output : more_outputs) {
    std::string message, field;
    protozero::pbf_writer(message).add_string(1, output);
    append_field(field, kOutput, as_bytes(message));
    shown.other_.push_back(made(std::move(field)));
  }
  const auto sized = [&](std::string& graph, const EditableInput& input) {
    const auto given = inputs.find(input.info.name);
    const auto dtype = onnx::dtype_of_onnx(input.info.element_type);
    if (given == inputs.end() || !dtype) return give_input(graph, input);
    const DataSpec spec = sized_spec(input.info.name, {*dtype, given->second});
    append_field(graph, kInput, as_bytes(onnx::value_message(spec)));
  };
  return shown.wrapped([&](std::string& graph, size_t i) { shown.give_tensor(graph, i); }, sized);
}

std::string EditableModel::write(const std::filesystem::path& path, int64_t most_bytes) const {
  if (has_inner_external_)
    throw UserError(
        fmt::format("{}: a tensor of a graph inside of a node lies in another file", name_),
        "save the model as one file first");
  int64_t total = 0;
  std::vector<std::optional<onnx::Known>> elements(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const onnx::TensorProto& proto = tensors_[i].proto;
    if (proto.is_external) elements[i] = named([&] { return files_->stored(proto); });
    total += elements[i] ? std::ssize(elements[i]->bytes()) : std::ssize(proto.message);
  }
  onnx::DataFile outside;
  std::vector<std::optional<size_t>> offsets(tensors_.size());
  if (total > most_bytes) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const onnx::TensorProto& proto = tensors_[i].proto;
      const bool is_large = proto.is_external || proto.message.size() >= onnx::kLeastOutside;
      if (!is_large || !onnx::dtype_of_onnx(proto.data_type)) continue;
      if (!elements[i]) elements[i] = this->elements(proto);
      if (elements[i]->bytes().size() >= onnx::kLeastOutside)
        offsets[i] = outside.add(elements[i]->bytes());
    }
  }
  return onnx::write_with_data(path, outside, [&](const std::string& data, ByteSink sink) {
    const auto placed = [&](std::string& graph, size_t i) {
      if (!elements[i] || (!offsets[i] && !tensors_[i].proto.is_external))
        return give_tensor(graph, i);
      onnx::TensorMessage message{.head = head_of(tensors_[i].part.bytes)};
      if (offsets[i])
        message.put_outside(data, *offsets[i], elements[i]->bytes().size());
      else
        message.put_inside(elements[i]->bytes());
      append(message.head, message.elements);
      append_field(graph, kInitializer, as_bytes(message.head));
    };
    onnx::give(sink, as_bytes(wrapped(placed, give_input)));
  });
}

DataSpec sized_spec(const std::string& name, const TensorType& type) {
  DataSpec spec{name, type.dtype, {}};
  for (const int64_t size : type.shape) spec.dims.emplace_back(size);
  return spec;
}

EditableNode made_node(const onnx::WrittenNode& node) {
  return {
      .proto = {.name = node.name, .op = node.op, .inputs = node.inputs, .outputs = node.outputs},
      .part = made(onnx::node_message(node))};
}

EditableNode renamed(const EditableNode& node,
                     std::vector<std::string> inputs,
                     std::vector<std::string> outputs) {
  std::string message;
  protozero::pbf_writer to(message);
  for (const std::string& input : inputs) to.add_string(kNodeInput, input);
  for (const std::string& output : outputs) to.add_string(kNodeOutput, output);
  for (const RawField& field : fields_of(node.part.bytes))
    if (field.number != kNodeInput && field.number != kNodeOutput) append(message, field.whole);
  EditableNode result{.proto = node.proto, .part = made(std::move(message))};
  result.proto.inputs = std::move(inputs);
  result.proto.outputs = std::move(outputs);
  return result;
}

}  // namespace ridge::compress
