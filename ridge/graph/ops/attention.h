// Scaled-dot-product attention.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// q (B, H, T, D), k (B, H, S, D), v (B, H, S, E) [, mask (B or 1, H or 1, T or 1, S) bool, true =
/// attend] -> (B, H, T, E): softmax(scale q k^T) v over the allowed keys (Vaswani et al.,
/// "Attention is all you need", 2017). `causal` allows query t the keys 0..t. A query without an
/// allowed key gives zeros. The gradient is that of expand().
class Attention final : public OpOf<Attention> {
 public:
  static constexpr OpTraits kTraits{.name = "attention",
                                    .min_inputs = 3,
                                    .max_inputs = 4,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kExpand};
  bool causal = false;
  double scale = 1.0;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override {
    v.visit("causal", causal);
    v.visit("scale", scale);
  }
};

struct AttentionOptions {
  bool causal = false;
  double scale = 0.0;  ///< 0: 1 / sqrt(D).
  Value mask = {};
};

Value attention(Value q, Value k, Value v, AttentionOptions options = {});

}  // namespace ridge
