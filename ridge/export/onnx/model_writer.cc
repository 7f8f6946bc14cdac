#include "ridge/export/onnx/model_writer.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "ridge/import/onnx/elements.h"
#include "ridge/io/checksum.h"
#include "ridge/io/file.h"

namespace ridge::onnx {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_writer;

constexpr std::string_view kProducer = "ridge";
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;
/// Smaller tensors stay in the model: shapes and axes are read by those who look at nothing else.
constexpr size_t kLeastOutside = 1024;
constexpr std::string_view kDataEnd = ".data";

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

/// A tensor's message but for its elements, which end it; of one in the other file there are none.
struct TensorMessage {
  std::string head;
  Bytes elements;

  size_t size() const { return head.size() + elements.size(); }
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

/// The file of the large tensors, each at a whole page.
class DataFile {
 public:
  /// Returns the place of the tensor in the file.
  size_t add(Bytes elements) {
    const size_t offset = (end_ + kPageBytes - 1) / kPageBytes * kPageBytes;
    parts_.push_back({offset, elements});
    end_ = offset + elements.size();
    return offset;
  }
  bool is_empty() const { return parts_.empty(); }
  void give_to(ByteSink sink) const {
    const std::string zeros(kPageBytes, '\0');
    size_t end = 0;
    for (const Part& part : parts_) {
      sink(as_bytes(std::string_view(zeros).substr(0, part.offset - end)));
      give(sink, part.elements);
      end = part.offset + part.elements.size();
    }
  }
  /// Files of other bytes have other names: that of the model that is replaced stays as it is.
  std::string name_beside(const fs::path& model) const {
    Checksum sum;
    give_to([&](Bytes bytes) { sum.update(bytes); });
    return fmt::format("{}.{}{}", model.filename().string(), checksum_text(sum.value()), kDataEnd);
  }

 private:
  struct Part {
    size_t offset = 0;
    Bytes elements;
  };
  std::vector<Part> parts_;
  size_t end_ = 0;
};

// True for a name that DataFile gives a file beside the model.
bool is_data_of(std::string_view name, const fs::path& model) {
  constexpr size_t kDigits = 16;
  const std::string begin = model.filename().string() + ".";
  if (name.size() != begin.size() + kDigits + kDataEnd.size() || !name.starts_with(begin) ||
      !name.ends_with(kDataEnd))
    return false;
  const std::string_view digits = name.substr(begin.size(), kDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Removes the data of models that had this name before, and of exports that were killed. Those that
// cannot be removed are in nobody's way.
void remove_old_data(const fs::path& model, const fs::path& kept) {
  const fs::path folder = model.has_parent_path() ? model.parent_path() : ".";
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator each(folder, error); !error && each != fs::directory_iterator();
       each.increment(error))
    if (const fs::path name = each->path().filename();
        is_data_of(name.string(), model) && name != kept.filename())
      old.push_back(each->path());
  for (const fs::path& path : old) fs::remove(path, error);
}

// The messages of all tensors. Without a name of `data` they hold all elements.
std::vector<TensorMessage> tensor_messages(const WrittenModel& model,
                                           const std::map<std::string, size_t>& offsets,
                                           const std::string& data) {
  std::vector<TensorMessage> messages;
  for (const auto& [name, tensor] : model.tensors) {
    TensorMessage& message = messages.emplace_back(tensor_message(name, tensor));
    const auto outside = offsets.find(name);
    if (outside == offsets.end()) {
      message.head += length_prefix(9, tensor.bytes().size());
      message.elements = tensor.bytes();
      continue;
    }
    pbf_writer to(message.head);
    add_entry(to, "location", data);
    add_entry(to, "offset", fmt::format("{}", outside->second));
    add_entry(to, "length", fmt::format("{}", tensor.bytes().size()));
    to.add_enum(14, 1);  // EXTERNAL
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

std::string write_model(const WrittenModel& model, const fs::path& path, int64_t most_bytes) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model.tensors) bytes += std::ssize(tensor.bytes());
  DataFile outside;
  std::map<std::string, size_t> offsets;
  if (bytes > most_bytes)
    for (const auto& [name, tensor] : model.tensors)
      if (tensor.bytes().size() >= kLeastOutside) offsets[name] = outside.add(tensor.bytes());
  const auto write = [&](const std::string& data) {
    const std::vector<TensorMessage> tensors = tensor_messages(model, offsets, data);
    stream_file_atomically(path, [&](ByteSink sink) {
      give(sink, as_bytes(model_head(model)));
      write_graph(model, tensors, sink);
    });
  };
  if (outside.is_empty()) {
    write({});
    remove_old_data(path, {});
    return {};
  }
  const fs::path data = path.parent_path() / outside.name_beside(path);
  std::error_code ignored;
  const bool was_there = fs::exists(data, ignored);
  stream_file_atomically(data, [&](ByteSink sink) { outside.give_to(sink); });
  try {
    write(data.filename().string());
  } catch (...) {
    if (!was_there) fs::remove(data, ignored);
    throw;
  }
  remove_old_data(path, data);
  return data.string();
}

}  // namespace ridge::onnx
