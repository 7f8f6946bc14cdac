// A matrix product together with the loop that reads it: what lies between them is never written.
#pragma once

#include <vector>

#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/product_loop.h"

namespace ridge {

/// If the loop reads a product that was rounded to 16 bits, a kernel may leave this rounding
/// out.
class FusedMatMul final : public ProductLoop<FusedMatMul, MatMul> {
 public:
  static constexpr OpTraits kTraits{.name = "fused_matmul",
                                    .min_inputs = 2,
                                    .max_inputs = 1 << 10,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kExpand};
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
