// Applies the rules of rules/ to every node, inputs first, until none matches.
//
//   a = neg(y)               b = sub(x, y)
//   b = add(x, a)      ->
#include "ridge/compile/pass.h"
#include "ridge/compile/rules/rule.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const auto table : {arithmetic_rules(), shape_rules()})
    rules.insert(rules.end(), table.begin(), table.end());
  return rules;
}

namespace {

// The value that stands for the node, by the first rule that matches; null for none.
Value apply_rules(const Node& node, const std::vector<Rule>& rules, Rewrite& rewrite) {
  const std::vector<Value> inputs = rewrite.mapped_inputs(node);
  for (const Rule& rule : rules) {
    if (!rule.op.empty() && rule.op != node.op->name()) continue;
    const size_t before = rewrite.to().nodes().size();
    const SiteScope scope(
        rewrite.to(), fmt::format("{}/{}", node.site.name, rule.name), SiteScope::Path::kAbsolute);
    const Value value = rule.apply(node, inputs);
    if (!value) continue;
    // The node that takes the place of another takes its name too.
    if (static_cast<size_t>(value.node->id) >= before) value.node->site = node.site;
    return value;
  }
  return {};
}

bool simplify_once(Graph& graph, const std::vector<Rule>& rules) {
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    Value value;
    if (!node->inputs.empty() && node->outputs.size() == 1)
      value = apply_rules(*node, rules, rewrite);
    if (value)
      rewrite.replace(*node, {value});
    else
      rewrite.copy(*node);
    changed = changed || value;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace

bool simplify(Graph& graph, PassContext& context) {
  std::vector<Rule> rules;
  for (const Rule& rule : all_rules())
    if (rule.semantic_class <= context.options.highest) rules.push_back(rule);
  bool changed = false;
  while (simplify_once(graph, rules)) {
    // Nodes that a rule left behind would match again.
    remove_dead(graph, context);
    changed = true;
  }
  return changed;
}

}  // namespace ridge
