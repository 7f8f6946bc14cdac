// Operators of com.microsoft on quantized values, as ONNX Runtime's tools write them in the format
// QOperator: each is an operator of floats between DequantizeLinear and QuantizeLinear, and is
// imported as these.
#include "ridge/import/onnx/node_context.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/expansion.h"

namespace ridge::onnx {
namespace {

constexpr std::string_view kPrefix = "QLinear";

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
  Expansion e(n, n.integer("opset", kByAxis) < kByAxis ? kByAxis - 1 : Expansion::kOpset);
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
