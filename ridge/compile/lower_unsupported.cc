// Writes fused ops that the device has no kernel for as the plain ops that they carry. Others are
// not asked about: of a contraction a library makes plans for that, and it may be cast first.
//
//                            m = reduce_max(x)
//   y = softmax(x)     ->    e = exp(sub(x, broadcast(m)))
//                            y = div(e, broadcast(reduce_sum(e)))
#include "ridge/compile/pass.h"
#include "ridge/compile/rewrite.h"

namespace ridge {
namespace {

bool lower_once(Graph& graph, Backend& backend) {
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (!node->op->has_plain_form() || !backend.candidates(*node).empty()) {
      rewrite.copy(*node);
      continue;
    }
    const SiteScope scope(rewrite.to(), node->site.name + "/plain", SiteScope::Path::kAbsolute);
    rewrite.replace(*node, node->op->expand(rewrite.mapped_inputs(*node)));
    changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace

bool lower_unsupported(Graph& graph, PassContext& context) {
  bool changed = false;
  // An expansion may hold fused ops itself; each round goes one level down.
  while (lower_once(graph, context.backend)) changed = true;
  return changed;
}

}  // namespace ridge
