// Computes equal things once: nodes of equal ops (all fields) on the same values.
//
//   a = exp(x)               a = exp(x)
//   b = exp(x)         ->    c = add(a, a)
//   c = add(a, b)
#include <string>
#include <unordered_map>

#include "ridge/compile/pass.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

std::string key_of(const Op& op, const std::vector<Value>& inputs) {
  std::string key = fmt::format("{}({})", op.name(), fields_text(op));
  for (const Value& input : inputs) key += fmt::format(" {}.{}", input.node->id, input.index);
  return key;
}

std::vector<Value> results_of(Node& node) {
  std::vector<Value> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) results.push_back({&node, static_cast<int>(i)});
  return results;
}

}  // namespace

bool merge_common(Graph& graph, PassContext&) {
  Rewrite rewrite(graph);
  std::unordered_map<std::string, Node*> known;
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->is<Input>()) {
      rewrite.copy(*node);
      continue;
    }
    const auto [at, is_new] = known.try_emplace(key_of(*node->op, rewrite.mapped_inputs(*node)));
    if (is_new) {
      at->second = &rewrite.copy(*node);
    } else {
      rewrite.replace(*node, results_of(*at->second));
      changed = true;
    }
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
