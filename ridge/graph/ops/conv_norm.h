// The gradients of a convolution with the batch norm behind it, as one op.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/ops/conv.h"

namespace ridge {

/// Of z = conv2d(x, w), y = batch_norm(z, gamma, beta) with the same fields: x, w, z, gamma, beta,
/// mean, variance and dy (as z) -> dx, dw, dgamma, dbeta. The gradient of z is never written.
class Conv2dNormGrad final : public OpOf<Conv2dNormGrad> {
 public:
  static constexpr OpTraits kTraits = {.name = "conv2d_norm_grad",
                                       .min_inputs = 8,
                                       .max_inputs = 8,
                                       .dtypes = kFloats,
                                       .op_class = OpClass::kContraction,
                                       .gradient = Gradient::kNone};
  WindowFields window;
  int64_t groups = 1;
  double eps = 1e-5;
  std::string activation = "none";
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

}  // namespace ridge
