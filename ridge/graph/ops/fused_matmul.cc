#include "ridge/graph/ops/fused_matmul.h"

#include "ridge/graph/ops/registry.h"

namespace ridge {
namespace {

// The operands of the loop: `product`, then the operands behind the factors.
template <typename T>
std::vector<T> of_loop(const T& product, std::span<const T> inputs) {
  std::vector<T> all{product};
  all.insert(all.end(), inputs.begin() + 2, inputs.end());
  return all;
}

}  // namespace

TensorType product_type(const FusedMatMul& op, std::span<const TensorType> inputs) {
  return op.product.infer(inputs.first(2))[0];
}

std::vector<TensorType> FusedMatMul::infer(std::span<const TensorType> inputs) const {
  const TensorType made = product_type(*this, inputs);
  std::vector<TensorType> types = loop.infer(of_loop(made, inputs));
  const int64_t elements = read_body(loop).domain.elements;
  check(elements == made.elements(),
        "[fused_matmul] the body is a loop over other elements than those of the product; got {} "
        "and {}",
        elements,
        to_string(made));
  return types;
}

std::vector<Value> FusedMatMul::expand(std::span<const Value> inputs) const {
  return loop.expand(of_loop(add_node(product, {inputs[0], inputs[1]}), inputs));
}

Cost FusedMatMul::cost(std::span<const TensorType> inputs,
                       std::span<const TensorType> outputs) const {
  const std::vector<TensorType> made{product_type(*this, inputs)};
  return {.flops = product.cost(inputs.first(2), made).flops +
                   loop.cost(of_loop(made[0], inputs), outputs).flops,
          .bytes = total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> FusedMatMul::batch_flow(const BatchFlowContext& c) const {
  return loop.batch_flow(c);
}

void FusedMatMul::fields(FieldVisitor& v) {
  product.fields(v);
  loop.fields(v);
}

Node& fused_matmul(Graph& graph,
                   const MatMul& product,
                   const Fused& loop,
                   Value a,
                   Value b,
                   const std::vector<Value>& others,
                   Site site) {
  FusedMatMul op;
  op.product = product;
  op.loop = loop;
  std::vector<Value> inputs{a, b};
  inputs.insert(inputs.end(), others.begin(), others.end());
  return graph.add(
      std::make_shared<const FusedMatMul>(std::move(op)), std::move(inputs), std::move(site));
}

void register_fused_matmul(OpRegistry& r) { r.add<FusedMatMul>(); }

}  // namespace ridge
