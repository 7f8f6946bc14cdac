#include "ridge/graph/ops/activation.h"

#include <numbers>

#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

std::vector<Value> Sigmoid::vjp(const VjpContext& c) const {
  return {c.dout() * c.out() * (1.0 - c.out())};
}

std::vector<Value> Relu::vjp(const VjpContext& c) const {
  const Value zero = constant_like(c.in(0), 0.0);
  return {where(gt(c.in(0), zero), c.dout(), zero)};
}

std::vector<Value> Gelu::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0];
  if (!tanh) return {x * 0.5 * (ridge::erf(x * (1.0 / std::numbers::sqrt2)) + 1.0)};
  const double sqrt_two_over_pi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Value inner = (x + x * x * x * 0.044715) * sqrt_two_over_pi;
  return {x * 0.5 * (ridge::tanh(inner) + 1.0)};
}

std::vector<Value> Silu::expand(std::span<const Value> inputs) const {
  return {inputs[0] * sigmoid(inputs[0])};
}

Value sigmoid(Value x) { return add_node(Sigmoid{}, {x}); }
Value relu(Value x) { return add_node(Relu{}, {x}); }
Value silu(Value x) { return add_node(Silu{}, {x}); }

Value relu6(Value x) {
  const Value y = relu(x), six = constant_like(x, 6.0);
  return where(ge(y, six), six, y);
}

Value gelu(Value x, GeluForm form) {
  Gelu op;
  op.tanh = form == GeluForm::kTanh;
  return add_node(std::move(op), {x});
}

void register_activation(OpRegistry& r) {
  r.add<Sigmoid>();
  r.add<Relu>();
  r.add<Gelu>();
  r.add<Silu>();
}

}  // namespace ridge
