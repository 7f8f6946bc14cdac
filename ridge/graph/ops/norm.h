// Normalisation of rows: layer and root-mean-square norm. Each carries its plain form in expand().
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

constexpr OpTraits norm_traits(std::string_view name, int inputs, Gradient gradient) {
  return {.name = name,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .dtypes = kFloats,
          .op_class = OpClass::kReduction,
          .gradient = gradient};
}

/// x (..., C), gamma (C), beta (C) -> (x - mean) / sqrt(variance + eps) * gamma + beta, over the
/// last axis with the biased variance (Ba et al., "Layer normalization", 2016).
class LayerNorm final : public OpOf<LayerNorm> {
 public:
  static constexpr OpTraits kTraits = norm_traits("layer_norm", 3, Gradient::kRule);
  double eps = 1e-5;
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("eps", eps); }
};

/// x (..., C), gamma (C) -> x / sqrt(mean(x^2) + eps) * gamma, over the last axis (Zhang and
/// Sennrich, "Root mean square layer normalization", 2019).
class RmsNorm final : public OpOf<RmsNorm> {
 public:
  static constexpr OpTraits kTraits = norm_traits("rms_norm", 2, Gradient::kExpand);
  double eps = 1e-5;
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("eps", eps); }
};

Value layer_norm(Value x, Value gamma, Value beta, double eps = 1e-5);
Value rms_norm(Value x, Value gamma, double eps = 1e-5);

}  // namespace ridge
