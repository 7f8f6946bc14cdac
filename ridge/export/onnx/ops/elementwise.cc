// Elementwise ops and activations.
#include "ridge/graph/ops/elementwise.h"

#include <algorithm>

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/ops/patterns.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/rewrite.h"
#include "ridge/import/onnx/elements.h"

namespace ridge::onnx {
namespace {

/// An op, its operator, and a second one on the result of the first.
struct PlainRow {
  std::string_view op, onnx, then = {};
};

constexpr PlainRow kPlain[] = {
    {"abs", "Abs"},           {"and", "And"},
    {"div", "Div"},           {"eq", "Equal"},
    {"erf", "Erf"},           {"exp", "Exp"},
    {"ge", "GreaterOrEqual"}, {"gt", "Greater"},
    {"le", "LessOrEqual"},    {"log", "Log"},
    {"lt", "Less"},           {"maximum", "Max"},
    {"minimum", "Min"},       {"mul", "Mul"},
    {"ne", "Equal", "Not"},   {"neg", "Neg"},
    {"not", "Not"},           {"or", "Or"},
    {"relu", "Relu"},         {"rsqrt", "Sqrt", "Reciprocal"},
    {"sigmoid", "Sigmoid"},   {"sign", "Sign"},
    {"sqrt", "Sqrt"},         {"sub", "Sub"},
    {"tanh", "Tanh"},
};

// Writes the operator on all inputs, in the order of axes that they have.
void give_each(NodeExport& n,
               std::string_view op,
               std::string_view then = {},
               const AttributeList& attributes = {}) {
  const std::vector<Value>& inputs = n.node().inputs;
  const bool as_image = std::any_of(
      inputs.begin(), inputs.end(), [&](Value input) { return n.to().is_image(input); });
  bool is_whole = std::any_of(
      inputs.begin(), inputs.end(), [](Value input) { return !GraphExport::is_broadcast(input); });
  std::vector<std::string> names;
  for (const Value input : inputs) {
    // The result has the shape of one that is not broadcast.
    names.push_back(is_whole ? n.to().operand(input, as_image) : n.to().name(input));
    is_whole = true;
  }
  std::string result = n.add(op, std::move(names), attributes);
  if (!then.empty()) result = n.add(then, {result});
  as_image ? n.give_image(result) : n.give(result);
}

void plain(NodeExport& n) {
  const PlainRow* row = std::ranges::find(kPlain, n.node().op->name(), &PlainRow::op);
  give_each(n, row->onnx, row->then);
}

void add(NodeExport& n) {
  if (!give_batch_norm(n) && !give_convolution_with_bias(n)) give_each(n, "Add");
}

void where(NodeExport& n) {
  if (!give_relu6(n)) give_each(n, "Where");
}

void cast(NodeExport& n) {
  give_each(n, "Cast", {}, AttributeList().integer("to", onnx_type_of(n.out().dtype())));
}

void is_finite(NodeExport& n) {
  const std::string x = n.name(0);
  n.give(n.add("Not", {n.add("Or", {n.add("IsInf", {x}), n.add("IsNaN", {x})})}));
}

bool has_gelu(const Node&, int64_t opset) { return opset >= 20; }

void gelu(NodeExport& n) {
  give_each(
      n, "Gelu", {}, AttributeList().text("approximate", n.op<Gelu>().tanh ? "tanh" : "none"));
}

}  // namespace

bool give_relu6(NodeExport& n) {
  const Node& at_least = *n.in(0).node;
  const Node& y = *n.in(2).node;
  if (!at_least.is<GreaterEqual>() || !y.is<Relu>()) return false;
  if (at_least.inputs[0] != n.in(2) || splat_of(at_least.inputs[1]) != 6.0 ||
      splat_of(n.in(1)) != 6.0)
    return false;
  const Value x = y.inputs[0];
  const bool as_image = n.to().is_image(x);
  const DType dtype = x.dtype();
  const std::string clipped = n.add("Clip",
                                    {as_image ? n.to().image(x) : n.to().name(x),
                                     n.to().scalar(dtype, 0.0),
                                     n.to().scalar(dtype, 6.0)});
  as_image ? n.give_image(clipped) : n.give(clipped);
  return true;
}

std::span<const ExportRow> elementwise_exports() {
  static const std::vector<ExportRow> rows = [] {
    std::vector<ExportRow> all{{"add", add},
                               {"cast", cast},
                               {"gelu", gelu, has_gelu},
                               {"is_finite", is_finite},
                               {"where", where}};
    for (const PlainRow& row : kPlain) all.push_back({row.op, plain});
    return all;
  }();
  return rows;
}

}  // namespace ridge::onnx
