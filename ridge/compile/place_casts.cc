// Lets contractions compute in 16 bits, with the sum in f32, as torch.autocast does. Merging common
// nodes afterwards leaves one cast a value.
//
//   y = matmul(a, b) : f32   ->   y = cast(matmul(cast(a), cast(b)) : bf16) : f32
#include <algorithm>

#include "ridge/compile/pass.h"
#include "ridge/compile/rewrite.h"
#include "ridge/graph/ops/elementwise.h"

namespace ridge {
namespace {

bool is_pinned(const Node& node, const std::vector<std::string>& pins) {
  return std::any_of(pins.begin(), pins.end(), [&](const std::string& pin) {
    return node.site.name.starts_with(pin);
  });
}

bool is_f32_contraction(const Node& node) {
  return node.op->traits().op_class == OpClass::kContraction &&
         node.outputs[0].dtype == DType::kF32 && node.inputs[0].dtype() == DType::kF32;
}

}  // namespace

bool place_casts(Graph& graph, PassContext& context) {
  if (context.precision == DType::kF32) return false;
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (!is_f32_contraction(*node) || is_pinned(*node, context.pins)) {
      rewrite.copy(*node);
      continue;
    }
    const SiteScope scope(rewrite.to(), node->site.name + "/cast", SiteScope::Path::kAbsolute);
    std::vector<Value> inputs = rewrite.mapped_inputs(*node);
    for (Value& input : inputs)
      if (input.dtype() == DType::kF32) input = cast(input, context.precision);
    Node& low = rewrite.to().add(node->op, std::move(inputs), node->site);
    std::vector<Value> results;
    for (size_t i = 0; i < low.outputs.size(); ++i)
      results.push_back(cast({&low, static_cast<int>(i)}, DType::kF32));
    rewrite.replace(*node, std::move(results));
    changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
