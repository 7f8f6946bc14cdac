#include "ridge/graph/signature.h"

#include <fmt/format.h>

#include "ridge/graph/ops/fused_matmul.h"

namespace ridge {
namespace {

// All of these append: a plan asks for the signatures of some hundred loops.
void add_fields_without_sites(std::string& text, const Node& node);

void add_number(std::string& text, int64_t number) {
  const fmt::format_int digits(number);
  text.append(digits.data(), digits.size());
}

void add_description(std::string& text, const Node& node) {
  text.append(node.op->name()) += '(';
  add_fields_without_sites(text, node);
  text += ')';
  for (const Value& input : node.inputs) text.append(" ") += to_string(input.type());
  text += " ->";
  for (const TensorType& type : node.outputs) text.append(" ") += to_string(type);
}

void add_loop(std::string& text, const Fused& op) {
  const Graph& body = read_body(op).graph;
  add_number(text, op.rows);
  text += " x ";
  add_number(text, op.columns);
  for (const auto& inner : body.nodes()) {
    text += "; ";
    add_number(text, inner->id);
    text += '=';
    for (const Value& input : inner->inputs) {
      add_number(text, input.node->id);
      text += ',';
    }
    add_description(text, *inner);
  }
  text += " out";
  for (const Output& output : body.outputs()) {
    text += ' ';
    add_number(text, output.value.node->id);
  }
}

void add_fields_without_sites(std::string& text, const Node& node) {
  if (node.is<Fused>()) return add_loop(text, node.op_as<Fused>());
  if (!node.is<FusedMatMul>()) {
    text += fields_text(*node.op);
    return;
  }
  const auto& op = node.op_as<FusedMatMul>();
  text.append(fields_text(op.product)) += "; ";
  add_loop(text, op.loop);
}

}  // namespace

std::string signature(const Node& node) {
  std::string text;
  add_description(text, node);
  return text;
}

}  // namespace ridge
