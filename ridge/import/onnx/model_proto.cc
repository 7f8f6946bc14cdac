#include "ridge/import/onnx/model_proto.h"

#include <algorithm>
#include <new>

#include "ridge/base/utf8.h"
#include "ridge/import/onnx/message.h"

namespace ridge::onnx {
namespace {

constexpr int kMaxDepth = 32;
// Two bytes of a file may become a node of some 200 bytes.
constexpr int64_t kMaxParts = int64_t{1} << 22;
constexpr size_t kMaxDims = 64;

class Parser {
 public:
  ModelProto model(Bytes bytes) {
    ModelProto model;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) model.ir_version = m.integer();
      if (m.field() == 7) model.graph = graph(m.bytes(), 0);
      if (m.field() == 8) opset(m.bytes(), model.opsets);
      if (m.field() == 25) model.functions.push_back(function(m.bytes()));
    }
    return model;
  }

  TensorProto tensor(Bytes bytes) {
    count_part();
    TensorProto tensor{.message = bytes};
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) m.append(tensor.dims);
      if (m.field() == 2) tensor.data_type = m.integer();
      if (m.field() == 8) tensor.name = name(m);
      if (m.field() == 14) tensor.is_external = m.integer() == 1;
    }
    check(tensor.dims.size() <= kMaxDims,
          "tensor '{}' has {} dimensions; expected at most {}",
          tensor.name,
          tensor.dims.size(),
          kMaxDims);
    return tensor;
  }

 private:
  void count_part() { check(++parts_ <= kMaxParts, "the model has more than {} parts", kMaxParts); }

  // Names are shown in messages, and become those of files.
  static std::string name(Message& m) {
    constexpr size_t kMostBytes = 4096;
    std::string text = m.text();
    check(text.size() <= kMostBytes, "a name has {} bytes", text.size());
    check(is_printable(text), "a name of {} bytes is no text", text.size());
    return text;
  }

  void append_name(std::vector<std::string>& to, Message& m) {
    count_part();
    to.push_back(name(m));
  }

  GraphProto graph(Bytes bytes, int depth) {
    check(depth <= kMaxDepth, "graphs lie more than {} deep in one another", kMaxDepth);
    GraphProto graph;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) graph.nodes.push_back(node(m.bytes(), depth));
      if (m.field() == 2) graph.name = name(m);
      if (m.field() == 5) graph.initializers.push_back(tensor(m.bytes()));
      if (m.field() == 11) graph.inputs.push_back(value_info(m.bytes()));
      if (m.field() == 12) graph.outputs.push_back(value_info(m.bytes()));
      if (m.field() == 15) graph.has_sparse = true;
    }
    return graph;
  }

  NodeProto node(Bytes bytes, int depth) {
    count_part();
    NodeProto node;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) append_name(node.inputs, m);
      if (m.field() == 2) append_name(node.outputs, m);
      if (m.field() == 3) node.name = name(m);
      if (m.field() == 4) node.op = name(m);
      if (m.field() == 5) node.attributes.push_back(attribute(m.bytes(), depth));
      if (m.field() == 7) node.domain = domain(name(m));
    }
    return node;
  }

  Attribute attribute(Bytes bytes, int depth) {
    count_part();
    Attribute a;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) a.name = name(m);
      if (m.field() == 2) a.number = m.number();
      if (m.field() == 3) a.integer = m.integer();
      if (m.field() == 4) a.text = m.text();
      if (m.field() == 5) a.tensor = std::make_shared<const TensorProto>(tensor(m.bytes()));
      if (m.field() == 6) a.graph = std::make_shared<const GraphProto>(graph(m.bytes(), depth + 1));
      if (m.field() == 7) m.append(a.numbers);
      if (m.field() == 8) m.append(a.integers);
      if (m.field() == 9) {
        count_part();
        a.texts.push_back(m.text());
      }
      if (m.field() == 20) a.type = m.integer();
      if (m.field() == 21) a.reference = name(m);
    }
    return a;
  }

  ValueInfo value_info(Bytes bytes) {
    count_part();
    ValueInfo info;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) info.name = name(m);
      if (m.field() == 2) type(m.bytes(), info);
    }
    return info;
  }

  void type(Bytes bytes, ValueInfo& info) {
    for (Message m(bytes); m.next();) {
      if (m.field() != 1) continue;  // sequences, maps and others
      for (Message tensor(m.bytes()); tensor.next();) {
        if (tensor.field() == 1) info.element_type = tensor.integer();
        if (tensor.field() != 2) continue;
        info.has_shape = true;
        info.dims.clear();
        for (Message shape(tensor.bytes()); shape.next();)
          if (shape.field() == 1) info.dims.push_back(dim(shape.bytes()));
      }
    }
  }

  DimProto dim(Bytes bytes) {
    count_part();
    DimProto dim;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) dim.value = m.integer();
      if (m.field() == 2) dim.name = name(m);
    }
    return dim;
  }

  FunctionProto function(Bytes bytes) {
    count_part();
    FunctionProto function;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) function.name = name(m);
      if (m.field() == 4) append_name(function.inputs, m);
      if (m.field() == 5) append_name(function.outputs, m);
      if (m.field() == 7) function.nodes.push_back(node(m.bytes(), 0));
      if (m.field() == 9) opset(m.bytes(), function.opsets);
      if (m.field() == 10) function.domain = domain(name(m));
      if (m.field() == 11) function.defaults.push_back(attribute(m.bytes(), 0));
    }
    return function;
  }

  void opset(Bytes bytes, Opsets& opsets) {
    count_part();
    std::string of;
    int64_t version = 0;
    for (Message m(bytes); m.next();) {
      if (m.field() == 1) of = domain(name(m));
      if (m.field() == 2) version = m.integer();
    }
    opsets[of] = version;
  }

  static std::string domain(std::string name) { return name == "ai.onnx" ? "" : name; }

  int64_t parts_ = 0;
};

template <typename F>
auto parse(std::string_view source, F&& body) {
  try {
    return body(Parser());
  } catch (const protozero::exception& error) {
    throw UserError(fmt::format("{}: no ONNX model, or a damaged one: {}", source, error.what()));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(fmt::format("{}: there is not the memory to read it", source));
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("{}: no ONNX model, or a damaged one: {}", source, error.message()));
  }
}

}  // namespace

namespace {

void add_external(const GraphProto& graph, std::vector<const TensorProto*>& found);

void add_external(const std::vector<NodeProto>& nodes, std::vector<const TensorProto*>& found) {
  for (const NodeProto& node : nodes)
    for (const Attribute& attribute : node.attributes) {
      if (attribute.tensor != nullptr && attribute.tensor->is_external)
        found.push_back(attribute.tensor.get());
      if (attribute.graph != nullptr) add_external(*attribute.graph, found);
    }
}

void add_external(const GraphProto& graph, std::vector<const TensorProto*>& found) {
  for (const TensorProto& tensor : graph.initializers)
    if (tensor.is_external) found.push_back(&tensor);
  add_external(graph.nodes, found);
}

}  // namespace

std::vector<const TensorProto*> external_tensors(const ModelProto& model) {
  std::vector<const TensorProto*> found;
  add_external(model.graph, found);
  for (const FunctionProto& function : model.functions) add_external(function.nodes, found);
  return found;
}

bool is_printable(std::string_view text) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  return valid_utf8(text) == text && std::none_of(text.begin(), text.end(), is_control);
}

ModelProto parse_model(Bytes bytes, std::string_view source) {
  ModelProto model = parse(source, [&](Parser parser) { return parser.model(bytes); });
  check(!model.graph.nodes.empty() || !model.graph.outputs.empty(),
        "{}: no ONNX model: it has no graph",
        source);
  return model;
}

TensorProto parse_tensor(Bytes bytes, std::string_view source) {
  return parse(source, [&](Parser parser) { return parser.tensor(bytes); });
}

}  // namespace ridge::onnx
