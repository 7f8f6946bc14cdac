// Lets contractions compute in 16 bits, with the sum in f32. A matrix product rounds its operands
// itself, while it packs them, and keeps its sums in f32; other contractions get casts, as
// from torch.autocast, and merging common nodes afterwards leaves one cast a value. Attention stays
// as it is: its kernels compute in f32 whatever they read.
//
//   y = matmul(a, b) : f32   ->   y = matmul[round_to=bf16](a, b) : f32
//   y = conv2d(a, b) : f32   ->   y = cast(conv2d(cast(a), cast(b)) : bf16) : f32
#include <algorithm>

#include "ridge/compile/pass.h"
#include "ridge/compile/rewrite.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"

namespace ridge {
namespace {

bool is_pinned(const Node& node, const std::vector<std::string>& pins) {
  return std::any_of(pins.begin(), pins.end(), [&](const std::string& pin) {
    return node.site.name.starts_with(pin);
  });
}

bool is_f32_contraction(const Node& node) {
  return node.op->traits().op_class == OpClass::kContraction && !node.is<Attention>() &&
         !node.is<AttentionGrad>() && node.outputs[0].dtype == DType::kF32 &&
         node.inputs[0].dtype() == DType::kF32;
}

void round_while_packing(const Node& node, DType precision, Rewrite& rewrite) {
  MatMul op = node.op_as<MatMul>();
  op.round_to = precision;
  Node& low = rewrite.to().add(
      std::make_shared<const MatMul>(std::move(op)), rewrite.mapped_inputs(node), node.site);
  rewrite.replace(node, {{&low, 0}});
}

void add_casts(const Node& node, DType precision, Rewrite& rewrite) {
  const SiteScope scope(rewrite.to(), node.site.name + "/cast", SiteScope::Path::kAbsolute);
  std::vector<Value> inputs = rewrite.mapped_inputs(node);
  for (Value& input : inputs)
    if (input.dtype() == DType::kF32) input = cast(input, precision);
  Node& low = rewrite.to().add(node.op, std::move(inputs), node.site);
  std::vector<Value> results;
  for (size_t i = 0; i < low.outputs.size(); ++i)
    results.push_back(cast({&low, static_cast<int>(i)}, DType::kF32));
  rewrite.replace(node, std::move(results));
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
    if (node->is<MatMul>())
      round_while_packing(*node, context.precision, rewrite);
    else
      add_casts(*node, context.precision, rewrite);
    changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
