#include "ridge/graph/ops/elementwise.h"

#include <cmath>
#include <numbers>

#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

const TensorType& common_type(std::span<const TensorType> inputs, std::string_view op) {
  for (const TensorType& type : inputs)
    check(type == inputs[0],
          "[{}] the inputs' types differ; got {} and {}",
          op,
          to_string(inputs[0]),
          to_string(type));
  return inputs[0];
}

std::vector<TensorType> Cast::infer(std::span<const TensorType> inputs) const {
  return {{to, inputs[0].shape}};
}

std::vector<TensorType> Where::infer(std::span<const TensorType> inputs) const {
  check(inputs[1] == inputs[2],
        "[where] the two choices' types differ; got {} and {}",
        to_string(inputs[1]),
        to_string(inputs[2]));
  check(inputs[0].shape == inputs[1].shape,
        "[where] the condition's shape differs from the choices'; got {} and {}",
        to_string(inputs[0]),
        to_string(inputs[1]));
  return {inputs[1]};
}

// ---- gradients ----

std::vector<Value> Neg::vjp(const VjpContext& c) const { return {neg(c.dout())}; }
std::vector<Value> Abs::vjp(const VjpContext& c) const { return {c.dout() * sign(c.in(0))}; }
std::vector<Value> Exp::vjp(const VjpContext& c) const { return {c.dout() * c.out()}; }
std::vector<Value> Log::vjp(const VjpContext& c) const { return {c.dout() / c.in(0)}; }

std::vector<Value> Sin::vjp(const VjpContext& c) const { return {c.dout() * cos(c.in(0))}; }
std::vector<Value> Cos::vjp(const VjpContext& c) const { return {c.dout() * neg(sin(c.in(0)))}; }

std::vector<Value> Tanh::vjp(const VjpContext& c) const {
  return {c.dout() * (1.0 - c.out() * c.out())};
}

std::vector<Value> Erf::vjp(const VjpContext& c) const {
  const double two_over_sqrt_pi = 2.0 * std::numbers::inv_sqrtpi;
  return {c.dout() * (exp(neg(c.in(0) * c.in(0))) * two_over_sqrt_pi)};
}

std::vector<Value> Sqrt::vjp(const VjpContext& c) const { return {c.dout() * 0.5 / c.out()}; }

std::vector<Value> Rsqrt::vjp(const VjpContext& c) const {
  return {c.dout() * -0.5 * c.out() / c.in(0)};
}

std::vector<Value> Cast::vjp(const VjpContext& c) const {
  const DType from = c.in(0).dtype();
  if (!is_float(from) || !is_float(to)) return {Value{}};
  return {cast(c.dout(), from)};
}

std::vector<Value> Add::vjp(const VjpContext& c) const { return {c.dout(), c.dout()}; }
std::vector<Value> Sub::vjp(const VjpContext& c) const { return {c.dout(), neg(c.dout())}; }

std::vector<Value> Mul::vjp(const VjpContext& c) const {
  return {c.dout() * c.in(1), c.dout() * c.in(0)};
}

std::vector<Value> Div::vjp(const VjpContext& c) const {
  const Value da = c.dout() / c.in(1);
  return {da, neg(da * c.out())};
}

std::vector<Value> Fmod::vjp(const VjpContext& c) const {
  return {c.dout(), c.dout() * (c.out() - c.in(0)) / c.in(1)};
}

std::vector<Value> Pow::vjp(const VjpContext& c) const {
  const Value a = c.in(0), b = c.in(1), dy = c.dout(), zero = constant_like(a, 0.0);
  const Value has_none = logical_and(eq(a, zero), ge(b, zero));
  return {where(eq(b, zero), zero, dy * b * pow(a, b - 1.0)),
          where(has_none, zero, dy * c.out() * log(a))};
}

namespace {

// Gradients of max and min: `first_wins` says where the first input is the result.
std::vector<Value> choice_gradients(const VjpContext& c, Value first_wins) {
  const Value dy = c.dout();
  const Value zero = constant_like(dy, 0.0);
  const Value tie = eq(c.in(0), c.in(1));
  const Value half = dy * 0.5;
  return {where(tie, half, where(first_wins, dy, zero)),
          where(tie, half, where(first_wins, zero, dy))};
}

}  // namespace

std::vector<Value> Maximum::vjp(const VjpContext& c) const {
  return choice_gradients(c, gt(c.in(0), c.in(1)));
}

std::vector<Value> Minimum::vjp(const VjpContext& c) const {
  return choice_gradients(c, lt(c.in(0), c.in(1)));
}

std::vector<Value> Where::vjp(const VjpContext& c) const {
  const Value zero = constant_like(c.dout(), 0.0);
  return {Value{}, where(c.in(0), c.dout(), zero), where(c.in(0), zero, c.dout())};
}

// ---- builders ----

Value neg(Value x) { return add_node(Neg{}, {x}); }
Value abs(Value x) { return add_node(Abs{}, {x}); }
Value sign(Value x) { return add_node(Sign{}, {x}); }
Value exp(Value x) { return add_node(Exp{}, {x}); }
Value log(Value x) { return add_node(Log{}, {x}); }
Value sin(Value x) { return add_node(Sin{}, {x}); }
Value cos(Value x) { return add_node(Cos{}, {x}); }
Value tanh(Value x) { return add_node(Tanh{}, {x}); }
Value erf(Value x) { return add_node(Erf{}, {x}); }
Value sqrt(Value x) { return add_node(Sqrt{}, {x}); }
Value rsqrt(Value x) { return add_node(Rsqrt{}, {x}); }
Value is_finite(Value x) { return add_node(IsFinite{}, {x}); }
Value logical_not(Value x) { return add_node(LogicalNot{}, {x}); }

Value cast(Value x, DType to) {
  if (x.dtype() == to) return x;
  Cast op;
  op.to = to;
  return add_node(std::move(op), {x});
}

namespace {

template <typename T>
Value add_broadcast_node(Value a, Value b) {
  const Shape shape = broadcast_shape(a.shape(), b.shape(), T::kTraits.name);
  return add_node(T{}, {broadcast(a, shape), broadcast(b, shape)});
}

}  // namespace

Value add(Value a, Value b) { return add_broadcast_node<Add>(a, b); }
Value sub(Value a, Value b) { return add_broadcast_node<Sub>(a, b); }
Value mul(Value a, Value b) { return add_broadcast_node<Mul>(a, b); }
Value div(Value a, Value b) { return add_broadcast_node<Div>(a, b); }
Value fmod(Value a, Value b) { return add_broadcast_node<Fmod>(a, b); }
Value pow(Value a, Value b) { return add_broadcast_node<Pow>(a, b); }
Value maximum(Value a, Value b) { return add_broadcast_node<Maximum>(a, b); }
Value minimum(Value a, Value b) { return add_broadcast_node<Minimum>(a, b); }
Value eq(Value a, Value b) { return add_broadcast_node<Equal>(a, b); }
Value ne(Value a, Value b) { return add_broadcast_node<NotEqual>(a, b); }
Value lt(Value a, Value b) { return add_broadcast_node<Less>(a, b); }
Value le(Value a, Value b) { return add_broadcast_node<LessEqual>(a, b); }
Value gt(Value a, Value b) { return add_broadcast_node<Greater>(a, b); }
Value ge(Value a, Value b) { return add_broadcast_node<GreaterEqual>(a, b); }
Value logical_and(Value a, Value b) { return add_broadcast_node<LogicalAnd>(a, b); }
Value logical_or(Value a, Value b) { return add_broadcast_node<LogicalOr>(a, b); }

Value where(Value condition, Value a, Value b) {
  Shape shape = broadcast_shape(a.shape(), b.shape(), "where");
  shape = broadcast_shape(condition.shape(), shape, "where");
  return add_node(Where{}, {broadcast(condition, shape), broadcast(a, shape), broadcast(b, shape)});
}

Value operator+(Value a, double b) { return add(a, constant_like(a, b)); }
Value operator-(Value a, double b) { return sub(a, constant_like(a, b)); }
Value operator*(Value a, double b) { return mul(a, constant_like(a, b)); }
Value operator/(Value a, double b) { return div(a, constant_like(a, b)); }
Value operator-(double a, Value b) { return sub(constant_like(b, a), b); }
Value operator/(double a, Value b) { return div(constant_like(b, a), b); }

void register_elementwise(OpRegistry& r) {
  r.add<Neg>();
  r.add<Abs>();
  r.add<Sign>();
  r.add<Exp>();
  r.add<Log>();
  r.add<Sin>();
  r.add<Cos>();
  r.add<Tanh>();
  r.add<Erf>();
  r.add<Sqrt>();
  r.add<Rsqrt>();
  r.add<IsFinite>();
  r.add<LogicalNot>();
  r.add<Cast>();
  r.add<Add>();
  r.add<Sub>();
  r.add<Mul>();
  r.add<Div>();
  r.add<Fmod>();
  r.add<Pow>();
  r.add<Maximum>();
  r.add<Minimum>();
  r.add<Equal>();
  r.add<NotEqual>();
  r.add<Less>();
  r.add<LessEqual>();
  r.add<Greater>();
  r.add<GreaterEqual>();
  r.add<LogicalAnd>();
  r.add<LogicalOr>();
  r.add<Where>();
}

}  // namespace ridge
