// Activations: fused elementwise ops that carry their plain form in expand().
#pragma once

#include <vector>

#include "ridge/graph/ops/elementwise.h"

namespace ridge {

class Sigmoid final : public Elementwise<Sigmoid> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("sigmoid", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// max(x, 0); NaN stays NaN; the gradient at 0 is 0.
class Relu final : public Elementwise<Relu> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("relu", kFloats, OpClass::kMove, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// x Phi(x): by erf, or with `tanh` by 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
/// (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
class Gelu final : public Elementwise<Gelu> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("gelu", kFloats, OpClass::kTranscendental, Gradient::kExpand);
  bool tanh = false;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  void fields(FieldVisitor& v) override { v.visit("tanh", tanh); }
};

/// x sigmoid(x).
class Silu final : public Elementwise<Silu> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("silu", kFloats, OpClass::kTranscendental, Gradient::kExpand);
  std::vector<Value> expand(std::span<const Value> inputs) const override;
};

Value sigmoid(Value x);
Value relu(Value x);
/// min(max(x, 0), 6) by plain ops; NaN stays NaN; the gradient at 0 and at 6 is 0.
Value relu6(Value x);
enum class GeluForm : uint8_t { kErf, kTanh };
Value gelu(Value x, GeluForm form = GeluForm::kErf);
Value silu(Value x);

}  // namespace ridge
