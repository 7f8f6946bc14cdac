#include "ridge/graph/signature.h"

#include <fmt/format.h>

#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/pointwise_depthwise.h"

namespace ridge {
namespace {

std::string fields_without_sites(const Node& node);

std::string describe(const Node& node) {
  std::string text = fmt::format("{}({})", node.op->name(), fields_without_sites(node));
  for (const Value& input : node.inputs) text += " " + to_string(input.type());
  text += " ->";
  for (const TensorType& type : node.outputs) text += " " + to_string(type);
  return text;
}

std::string loop_text(const Fused& op) {
  const Graph& body = read_body(op).graph;
  std::string text = fmt::format("{} x {}", op.rows, op.columns);
  for (const auto& inner : body.nodes()) {
    text += fmt::format("; {}=", inner->id);
    for (const Value& input : inner->inputs) text += fmt::format("{},", input.node->id);
    text += describe(*inner);
  }
  text += " out";
  for (const Output& output : body.outputs()) text += fmt::format(" {}", output.value.node->id);
  return text;
}

std::string fields_without_sites(const Node& node) {
  if (node.is<Fused>()) return loop_text(node.op_as<Fused>());
  const auto of_both = [](const auto& op) {
    return fmt::format("{}; {}", fields_text(op.product), loop_text(op.loop));
  };
  if (node.is<FusedMatMul>()) return of_both(node.op_as<FusedMatMul>());
  if (node.is<FusedConv2d>()) return of_both(node.op_as<FusedConv2d>());
  if (node.is<PointwiseDepthwise>()) {
    PointwiseDepthwise op = node.op_as<PointwiseDepthwise>();
    const std::string loops = fmt::format("{}; {}", loop_text(op.first), loop_text(op.second));
    op.first.body.clear();
    op.second.body.clear();
    return fmt::format("{}; {}", fields_text(op), loops);
  }
  return fields_text(*node.op);
}

}  // namespace

std::string signature(const Node& node) { return describe(node); }

}  // namespace ridge
