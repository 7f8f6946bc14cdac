// The printing half of text.h.
#include "ridge/graph/fields.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

std::string value_text(const Value& value) {
  if (value.node == nullptr) return "%null";
  return value.index == 0 ? fmt::format("%{}", value.node->id)
                          : fmt::format("%{}.{}", value.node->id, value.index);
}

}  // namespace

std::string print(const Node& node) {
  std::string line = fmt::format("%{} = {}(", node.id, node.op->name());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    line += fmt::format("{}{}", i == 0 ? "" : ", ", value_text(node.inputs[i]));
  line += ")";
  if (const std::string fields = fields_text(*node.op); !fields.empty())
    line += fmt::format(" {{{}}}", fields);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    line += fmt::format("{}{}", i == 0 ? " : " : ", ", to_string(node.outputs[i]));
  return line + fmt::format(" @ {}", quoted_text(node.site.name));
}

std::string print(const Graph& graph) {
  std::string text = fmt::format("ridge.graph/1 {}\n", quoted_text(graph.name()));
  for (const auto& [name, size] : graph.binding())
    text += fmt::format("dim {} = {}\n", quoted_text(name), size);
  for (const auto& node : graph.nodes()) text += print(*node) + "\n";
  for (const Output& output : graph.outputs()) {
    text += fmt::format("output {} = {}", quoted_text(output.name), value_text(output.value));
    if (!output.updates.empty()) text += fmt::format(" updates {}", quoted_text(output.updates));
    text += "\n";
  }
  return text;
}

}  // namespace ridge
