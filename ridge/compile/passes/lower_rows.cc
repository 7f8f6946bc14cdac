// Writes softmax and cross-entropy as the plain ops that they are made of, where the device runs
// loops over rows: loss and gradient then share one loop, and the probabilities are never written.
// Norms stay: their own kernel corrects the mean, and backward is plain ops already. Where their
// result goes into memory in 16 bits they are lowered too: the loop around them writes no f32.
//
//                            m = reduce_max(x)
//   y = softmax(x)     ->    e = exp(sub(x, broadcast(m)))
//                            y = mul(e, broadcast(div(1, reduce_sum(e))))
#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

bool runs_rows(Backend& backend, DType dtype) {
  Graph body("fused"), probe("probe");
  const TensorType type{dtype, {2, 2}};
  body.add_output("0", reduce_max(input(body, "0", type), {1}));
  return has_kernel(fused(probe, body, {input(probe, "0", type)}, Site{}, LoopDomain{4, 2}),
                    backend);
}

// 16-bit floats keep their kernels, which compute in f32.
bool is_lowered(const Node& node, const PassContext& context) {
  const bool stores_16_bits =
      context.options.precision != DType::kF32 && context.backend.stores_16_bits();
  const bool is_norm = stores_16_bits && (node.is<LayerNorm>() || node.is<RmsNorm>());
  if (!node.is<Softmax>() && !node.is<LogSoftmax>() && !node.is<CrossEntropy>() && !is_norm)
    return false;
  const Shape& shape = node.inputs[0].shape();
  const DType dtype = node.inputs[0].dtype();
  return (dtype == DType::kF32 || dtype == DType::kF64) && shape.back() >= 2 &&
         shape.back() <= kMostLoopColumns && numel(shape) / shape.back() >= 2;
}

}  // namespace

bool lower_rows(Graph& graph, PassContext& context) {
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->is<Input>() || !is_lowered(*node, context) ||
        !runs_rows(context.backend, node->outputs[0].dtype)) {
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

}  // namespace ridge
