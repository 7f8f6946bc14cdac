// Writes ops that the device has no kernel for as the plain ops that they carry. Where contractions
// will be cast they are left for a second pass behind that: a kernel of 16 bits may be there where
// none of f32 is, and a library makes plans for each that it is asked about.
//
//                            m = reduce_max(x)
//   y = softmax(x)     ->    e = exp(sub(x, broadcast(m)))
//                            y = div(e, broadcast(reduce_sum(e)))
#include "ridge/compile/pass.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

bool are_cast(const PassContext& context) {
  return context.options.precision != DType::kF32 && context.backend.stores_16_bits();
}

bool lower_once(Graph& graph, Backend& backend, bool with_contractions) {
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    const bool is_left = !with_contractions && node->op->traits().op_class == OpClass::kContraction;
    if (is_left || !node->op->has_plain_form() || !backend.candidates(*node).empty()) {
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

// An expansion may hold fused ops itself; each round goes one level down.
bool lower_all(Graph& graph, Backend& backend, bool with_contractions) {
  bool changed = false;
  while (lower_once(graph, backend, with_contractions)) changed = true;
  return changed;
}

}  // namespace

bool lower_unsupported(Graph& graph, PassContext& context) {
  return lower_all(graph, context.backend, !are_cast(context));
}

bool lower_contractions(Graph& graph, PassContext& context) {
  return are_cast(context) && lower_all(graph, context.backend, true);
}

}  // namespace ridge
