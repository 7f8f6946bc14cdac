#include "ridge/graph/ops/fused_conv.h"

#include "ridge/graph/ops/registry.h"

namespace ridge {

TensorType type_in_loop(const Fused& loop, const TensorType& product) {
  for (const Node* node : read_body(loop).graph.inputs())
    if (input_number(*node) == 0 && node->outputs[0].elements() == product.elements())
      return {product.dtype, node->outputs[0].shape};
  return product;
}

Node& fused_conv2d(Graph& graph,
                   const Conv2d& product,
                   const Fused& loop,
                   Value x,
                   Value w,
                   const std::vector<Value>& others,
                   Site site) {
  return product_in_loop<FusedConv2d>(graph, product, loop, x, w, others, std::move(site));
}

void register_fused_conv(OpRegistry& r) { r.add<FusedConv2d>(); }

}  // namespace ridge
