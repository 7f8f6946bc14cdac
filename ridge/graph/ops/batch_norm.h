// Batch norm, with the activation that follows it, and its gradient.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// The activation that batch norm applies to its result.
enum class NormActivation : uint8_t {
  kNone,
  kRelu,
  kRelu6,  ///< min(max(x, 0), 6)
};

constexpr OpTraits batch_norm_traits(std::string_view name, int inputs, Gradient gradient) {
  return {.name = name,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .dtypes = kFloats,
          .op_class = OpClass::kReduction,
          .gradient = gradient};
}

/// Training form: x (..., C), gamma (C), beta (C) -> y (..., C), mean (C), biased variance (C), the
/// statistics over all axes but the last (Ioffe and Szegedy, "Batch normalization", 2015). y is
/// passed through the activation: none, relu or relu6. All that has one value a channel is of the
/// dtype of x, or of f32 where x has 16 bits; so it is in the other ops, too.
class BatchNorm final : public OpOf<BatchNorm> {
 public:
  static constexpr OpTraits kTraits = batch_norm_traits("batch_norm", 3, Gradient::kRule);
  double eps = 1e-5;
  std::string activation = "none";
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// x, gamma, beta, mean and variance of a BatchNorm of the same fields, and dy (..., C) -> dx,
/// dgamma, dbeta. The statistics count as functions of x; no gradient flows where the activation is
/// at or beyond a kink.
class BatchNormGrad final : public OpOf<BatchNormGrad> {
 public:
  static constexpr OpTraits kTraits = batch_norm_traits("batch_norm_grad", 6, Gradient::kNone);
  double eps = 1e-5;
  std::string activation = "none";
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// Computes all that a BatchNorm of the same eps needs besides x: x (..., C), gamma (C), beta (C)
/// -> mean, biased variance, scale and shift (C each), where its result is the activation of (x -
/// mean) * scale + shift. The shift is beta but for what rounding takes off the mean.
class BatchNormStats final : public OpOf<BatchNormStats> {
 public:
  static constexpr OpTraits kTraits = batch_norm_traits("batch_norm_stats", 3, Gradient::kNone);
  double eps = 1e-5;
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// The activation of that name; UserError when there is none.
NormActivation norm_activation(const std::string& name, std::string_view op);

struct BatchNormResult {
  Value y, mean, variance;
};
BatchNormResult batch_norm(Value x,
                           Value gamma,
                           Value beta,
                           double eps = 1e-5,
                           NormActivation activation = NormActivation::kNone);
/// Inference form, with running statistics (C): plain ops.
Value batch_norm_inference(
    Value x, Value gamma, Value beta, Value mean, Value variance, double eps = 1e-5);
/// (x - mean) * scale + shift and its activation by plain ops; `norm` is those three.
Value normalized(Value x, std::span<const Value> norm, NormActivation activation);
/// UserError unless the three go with the last axis of x.
void check_normalized(std::string_view op, const TensorType& x, std::span<const TensorType> norm);
/// The activation by plain ops.
Value activated(Value x, NormActivation activation);

}  // namespace ridge
