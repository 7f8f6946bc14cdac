// Adds rows right to the sum that they are part of: the gradient of a lookup in a table that is
// used elsewhere too needs no table of zeros of its own.
//
//   s = scatter_add(updates, indices)
//   y = add(g, s)                        ->   y = scatter_add(updates, indices, g)
#include "ridge/compile/pass.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// How often each node is read, or is an output.
std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.nodes().size());
  for (const auto& node : graph.nodes())
    for (const Value& input : node->inputs) ++uses[static_cast<size_t>(input.node->id)];
  for (const Output& output : graph.outputs()) ++uses[static_cast<size_t>(output.value.node->id)];
  return uses;
}

// Which operand of the sum is a scatter-add that nobody else reads; -1: none.
int scattered_operand(const Node& node, const std::vector<int>& uses) {
  if (!node.is<Add>()) return -1;
  for (int i = 1; i >= 0; --i) {
    const Node& from = *node.inputs[static_cast<size_t>(i)].node;
    if (from.is<ScatterAdd>() && from.inputs.size() == 2 && uses[static_cast<size_t>(from.id)] == 1)
      return i;
  }
  return -1;
}

}  // namespace

bool scatter_to_sums(Graph& graph, PassContext&) {
  const std::vector<int> uses = count_uses(graph);
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    const int at = scattered_operand(*node, uses);
    if (at < 0) {
      rewrite.copy(*node);
      continue;
    }
    const Node& scatter = *node->inputs[static_cast<size_t>(at)].node;
    std::vector<Value> inputs = rewrite.mapped_inputs(scatter);
    inputs.push_back(rewrite.mapped(node->inputs[static_cast<size_t>(1 - at)]));
    rewrite.replace(*node, {{&rewrite.to().add(scatter.op, std::move(inputs), scatter.site), 0}});
    changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
