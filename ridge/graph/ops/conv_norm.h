// Convolutions together with the batch norms around them: what passes between them is never
// written.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/ops/conv.h"

namespace ridge {

/// conv2d(y, w) of the same fields, y = normalized(x, {mean, scale, shift}, activation): x (N,
/// H, W, C), the three (C), w (KH, KW, C / groups, O) -> (N, OH, OW, O).
class NormConv2d final : public OpOf<NormConv2d> {
 public:
  static constexpr OpTraits kTraits = {.name = "norm_conv2d",
                                       .min_inputs = 5,
                                       .max_inputs = 5,
                                       .dtypes = kFloats,
                                       .op_class = OpClass::kContraction,
                                       .gradient = Gradient::kExpand};
  WindowFields window;
  int64_t groups = 1;
  std::string activation = "none";
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override { return expanded_vjp(c); }
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// The gradient of z = conv2d(x, w), y = batch_norm(z, gamma, beta) with the same fields: x, w, z,
/// gamma, beta, mean, variance and dy (as z) -> dx, dw, dgamma, dbeta. The gradient of z is never
/// written. Three more inputs {mean, scale, shift} say that the convolution's input is
/// normalized(x, them, input_activation); dx is the gradient of that.
class Conv2dNormGrad final : public OpOf<Conv2dNormGrad> {
 public:
  static constexpr OpTraits kTraits = {.name = "conv2d_norm_grad",
                                       .min_inputs = 8,
                                       .max_inputs = 11,
                                       .dtypes = kFloats,
                                       .op_class = OpClass::kContraction,
                                       .gradient = Gradient::kNone};
  WindowFields window;
  int64_t groups = 1;
  double eps = 1e-5;
  std::string activation = "none";
  std::string input_activation = "none";
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

}  // namespace ridge
