// Operators of com.microsoft on quantized values, as ONNX Runtime's tools write them in the format
// QOperator: each is an operator of floats between DequantizeLinear and QuantizeLinear, and is
// imported as these.
#include "ridge/import/onnx/node_context.h"
#include "ridge/import/onnx/op_table.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kOpset = 17;
constexpr std::string_view kPrefix = "QLinear";

// Nodes of ONNX's own operators that stand for one node, in a scope of their own.
class Expansion {
 public:
  explicit Expansion(NodeContext& n, int64_t opset = kOpset)
      : n_(n),
        opsets_{{"", opset}},
        scope_{
            .opsets = &opsets_, .attributes = n.scope().attributes, .depth = n.scope().depth + 1} {}

  // The name of input i in the scope. UserError where it is missing.
  std::string input(size_t i) {
    std::string name = fmt::format("input {}", i);
    scope_.values[name] = n_.datum(i);
    return name;
  }
  // The same of an optional input: empty where it is not there.
  std::string optional(size_t i) { return n_.has(i) ? input(i) : std::string(); }

  // The name of the result.
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

  // The integers of input i as floats: their scale and zero point are the two inputs behind it.
  std::string floats(size_t i, int64_t axis = 1) {
    return add(
        "DequantizeLinear", {input(i), input(i + 1), optional(i + 2)}, {integer("axis", axis)});
  }

  // The result of the node: y, whose scale and zero point are the inputs i and i + 1.
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

// `Add` of the node QLinearAdd.
std::string float_op(const NodeContext& n) { return n.proto().op.substr(kPrefix.size()); }

void qlinear_unary(NodeContext& n) {
  check(n.integer("channels_last", 0) == 0, "its images have their channels last");
  Expansion e(n);
  e.give_quantized(e.add(float_op(n), {e.floats(0)}, n.proto().attributes), 3);
}

void qlinear_binary(NodeContext& n) {
  Expansion e(n);
  const std::string a = e.floats(0), b = e.floats(3);
  e.give_quantized(e.add(float_op(n), {a, b}), 6);
}

// Before version 13 a softmax is over all axes from `axis` on.
void qlinear_softmax(NodeContext& n) {
  constexpr int64_t kByAxis = 13;
  Expansion e(n, n.integer("opset", kByAxis) < kByAxis ? kByAxis - 1 : kOpset);
  const int64_t axis = n.integer("axis", -1);
  e.give_quantized(e.add("Softmax", {e.floats(0)}, {Expansion::integer("axis", axis)}), 3);
}

void qlinear_concat(NodeContext& n) {
  Expansion e(n);
  std::vector<std::string> parts;
  for (size_t i = 2; i < n.inputs(); i += 3) parts.push_back(e.floats(i));
  e.give_quantized(e.add("Concat", parts, n.proto().attributes), 0);
}

void qlinear_where(NodeContext& n) {
  Expansion e(n);
  const std::string x = e.floats(1), y = e.floats(4);
  e.give_quantized(e.add("Where", {e.input(0), x, y}), 7);
}

// The result is f32 where it has no scale. A bias of i32 has the product of both scales.
void qgemm(NodeContext& n) {
  check(n.number("alpha", 1.0) == 1.0, "its alpha is not 1");
  Expansion e(n);
  const bool transposes_b = n.integer("transB", 0) != 0;
  std::vector<std::string> inputs{e.floats(0), e.floats(3, transposes_b ? 0 : 1)};
  if (n.has(6)) {
    const std::string scale = e.add("Mul", {e.input(1), e.input(4)});
    inputs.push_back(
        e.add("DequantizeLinear", {e.input(6), scale}, {Expansion::integer("axis", 0)}));
  }
  const std::string y = e.add("Gemm",
                              inputs,
                              {Expansion::integer("transA", n.integer("transA", 0)),
                               Expansion::integer("transB", transposes_b ? 1 : 0)});
  n.has(7) ? e.give_quantized(y, 7) : e.give(y);
}

constexpr OpRow row(std::string_view name, void (*build)(NodeContext& node)) {
  return {.name = name, .build = build, .last = 1, .domain = kMicrosoft, .is_control = true};
}

constexpr OpRow kQlinearOps[] = {
    row("QGemm", qgemm),
    row("QLinearAdd", qlinear_binary),
    row("QLinearAveragePool", qlinear_unary),
    row("QLinearConcat", qlinear_concat),
    row("QLinearGlobalAveragePool", qlinear_unary),
    row("QLinearLeakyRelu", qlinear_unary),
    row("QLinearMul", qlinear_binary),
    row("QLinearSigmoid", qlinear_unary),
    row("QLinearSoftmax", qlinear_softmax),
    row("QLinearWhere", qlinear_where),
};

}  // namespace

std::span<const OpRow> qlinear_ops() { return kQlinearOps; }

}  // namespace ridge::onnx
