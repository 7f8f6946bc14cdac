// Leaves out what no output needs. Inputs stay: they are the graph's interface.
//
//   a = mul(x, y)            b = add(x, y)
//   b = add(x, y)      ->    output b
//   output b
#include "ridge/compile/pass.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {

bool remove_dead(Graph& graph, PassContext&) {
  const std::vector<bool> live = live_nodes(graph);
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (live[static_cast<size_t>(node->id)] || node->is<Input>())
      rewrite.copy(*node);
    else
      changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
