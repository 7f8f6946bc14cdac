// Nodes of ONNX's own operators that stand for one node, in a scope of their own.
#pragma once

#include <string>
#include <vector>

#include "ridge/import/onnx/node_context.h"

namespace ridge::onnx {

class Expansion {
 public:
  static constexpr int64_t kOpset = 17;

  explicit Expansion(NodeContext& n, int64_t opset = kOpset)
      : n_(n),
        opsets_{{"", opset}},
        scope_{
            .opsets = &opsets_, .attributes = n.scope().attributes, .depth = n.scope().depth + 1} {}

  /// The name of input i in the scope. UserError where it is missing.
  std::string input(size_t i) { return named(fmt::format("input {}", i), n_.datum(i)); }
  /// The same of an optional input: empty where it is not there.
  std::string optional(size_t i) { return n_.has(i) ? input(i) : std::string(); }
  /// Some other value of the model, by a name that no other has; empty where it is null.
  std::string named(std::string name, const DatumPtr& datum) {
    if (datum == nullptr) return {};
    scope_.values[name] = datum;
    return name;
  }

  /// The name of the result.
  std::string add(std::string op,
                  std::vector<std::string> inputs,
                  std::vector<Attribute> attributes = {}) {
    std::string result = fmt::format("{}:{}", n_.proto().outputs[0], scope_.values.size());
    n_.import().import_node({.name = n_.proto().name,
                             .op = std::move(op),
                             .inputs = std::move(inputs),
                             .outputs = {result},
                             .attributes = std::move(attributes)},
                            scope_);
    return result;
  }

  /// The integers of input i as floats: their scale and zero point are the two inputs behind it.
  std::string floats(size_t i, int64_t axis = 1) {
    return add(
        "DequantizeLinear", {input(i), input(i + 1), optional(i + 2)}, {integer("axis", axis)});
  }

  /// The result of the node: y, whose scale and zero point are the inputs i and i + 1.
  void give_quantized(const std::string& y, size_t i) {
    give(add("QuantizeLinear", {y, input(i), input(i + 1)}));
  }
  void give(const std::string& y) { n_.give(0, scope_.find(y)); }

  static Attribute integer(std::string name, int64_t value) {
    Attribute attribute;
    attribute.name = std::move(name);
    attribute.type = static_cast<int64_t>(Attribute::Type::kInt);
    attribute.integer = value;
    return attribute;
  }

 private:
  NodeContext& n_;
  Opsets opsets_;
  Scope scope_;
};

}  // namespace ridge::onnx
