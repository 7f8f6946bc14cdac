// A product together with the loop that reads it, as one op.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/shape.h"

namespace ridge {

/// The type of a product with the shape in which the loop reads it, its input "0".
TensorType type_in_loop(const Fused& loop, const TensorType& product);

/// `loop` of the product of the first two inputs and of the other inputs: input "0" of the loop's
/// body is the product, of any shape of as many elements, input "1" the node's third, and so on;
/// results are the loop's. The body is that of any Fused over as many elements as the product has.
/// The fields are those of both.
///
/// The plain form is the product and the body, node by node.
template <typename Self, typename Product>
class ProductLoop : public OpOf<Self> {
 public:
  Product product;
  Fused loop;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override {
    const TensorType made = product_type(inputs);
    std::vector<TensorType> types = loop.infer(of_loop(type_in_loop(made), inputs));
    const int64_t elements = read_body(loop).domain.elements;
    check(elements == made.elements(),
          "[{}] the body is a loop over other elements than those of the product; got {} and {}",
          Self::kTraits.name,
          elements,
          to_string(made));
    return types;
  }
  std::vector<Value> expand(std::span<const Value> inputs) const override {
    const Value made = add_node(product, {inputs[0], inputs[1]});
    return loop.expand(of_loop(reshape(made, type_in_loop(made.type()).shape), inputs));
  }
  Cost cost(std::span<const TensorType> inputs,
            std::span<const TensorType> outputs) const override {
    const std::vector<TensorType> made{product_type(inputs)};
    return {.flops = product.cost(inputs.first(2), made).flops +
                     loop.cost(of_loop(type_in_loop(made[0]), inputs), outputs).flops,
            .bytes = total_bytes(inputs) + total_bytes(outputs)};
  }
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override {
    return loop.batch_flow(c);
  }
  /// None: kernels do not say in which order they read and write.
  bool may_overwrite(size_t, size_t) const override { return false; }
  void fields(FieldVisitor& v) override {
    product.fields(v);
    loop.fields(v);
  }

  /// The product's type with the shape in which the body reads it.
  TensorType type_in_loop(const TensorType& made) const { return ridge::type_in_loop(loop, made); }
  /// The type of the product.
  TensorType product_type(std::span<const TensorType> inputs) const {
    return product.infer(inputs.first(2))[0];
  }

 private:
  // The operands of the loop: the product, then the operands behind the factors.
  template <typename T>
  static std::vector<T> of_loop(const T& made, std::span<const T> inputs) {
    std::vector<T> all{made};
    all.insert(all.end(), inputs.begin() + 2, inputs.end());
    return all;
  }
};

/// The node of op Op that computes what `loop` does of the product of `a` and `b` and of `others`.
template <typename Op, typename Product>
Node& product_in_loop(Graph& graph,
                      const Product& product,
                      const Fused& loop,
                      Value a,
                      Value b,
                      const std::vector<Value>& others,
                      Site site) {
  Op op;
  op.product = product;
  op.loop = loop;
  std::vector<Value> inputs{a, b};
  inputs.insert(inputs.end(), others.begin(), others.end());
  return graph.add(std::make_shared<const Op>(std::move(op)), std::move(inputs), std::move(site));
}

}  // namespace ridge
