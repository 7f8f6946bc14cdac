#include "ridge/graph/ops/fused_matmul.h"

#include "ridge/graph/ops/registry.h"

namespace ridge {

TensorType product_type(const FusedMatMul& op, std::span<const TensorType> inputs) {
  return op.product_type(inputs);
}

Node& fused_matmul(Graph& graph,
                   const MatMul& product,
                   const Fused& loop,
                   Value a,
                   Value b,
                   const std::vector<Value>& others,
                   Site site) {
  return product_in_loop<FusedMatMul>(graph, product, loop, a, b, others, std::move(site));
}

void register_fused_matmul(OpRegistry& r) { r.add<FusedMatMul>(); }

}  // namespace ridge
