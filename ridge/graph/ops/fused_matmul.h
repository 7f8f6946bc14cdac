// A matrix product together with the loop that reads it: what lies between them is never written.
#pragma once

#include <memory>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/matmul.h"

namespace ridge {

/// `loop` of the product of the first two inputs and of the other inputs: input "0" of the loop's
/// body is the product, input "1" the node's third, and so on; results are the loop's. The body is
/// that of any Fused over as many elements as the product has. The fields are those of both.
///
/// The plain form is the product and the body, node by node. Where that rounds the product to 16
/// bits before the loop reads it, a kernel may leave this rounding out.
class FusedMatMul final : public OpOf<FusedMatMul> {
 public:
  static constexpr OpTraits kTraits{.name = "fused_matmul",
                                    .min_inputs = 2,
                                    .max_inputs = 1 << 10,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kExpand};
  MatMul product;
  Fused loop;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  /// None: libraries do not say in which order they read and write.
  bool may_overwrite(size_t, size_t) const override { return false; }
  void fields(FieldVisitor& v) override;
};

/// The type of the product that the loop of a fused_matmul node reads.
TensorType product_type(const FusedMatMul& op, std::span<const TensorType> inputs);

/// The node of op fused_matmul that computes what `loop` does of the product of `a` and `b` and of
/// `others`.
Node& fused_matmul(Graph& graph,
                   const MatMul& product,
                   const Fused& loop,
                   Value a,
                   Value b,
                   const std::vector<Value>& others,
                   Site site);

}  // namespace ridge
