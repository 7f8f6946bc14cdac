// Functions of one operand, and the gradients that ATen has as an operator of their own.
#include <cmath>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"
#include "ridge/import/builders/functions.h"

namespace ridge::aten {
namespace {

using Values = std::vector<Value>;

template <Value (*kApply)(Value)>
void of_one(NodeContext& n) {
  each_element(n, {0}, n.result_type().dtype, [](const Values& v) { return kApply(v[0]); });
}

template <Value (*kApply)(Value)>
void of_float(NodeContext& n) {
  check(is_float(n.result_type().dtype), "it is of {}", name_of(n.result_type().dtype));
  of_one<kApply>(n);
}

// Whole numbers are what these would make of them.
template <Value (*kApply)(Value)>
void rounded(NodeContext& n) {
  if (is_float(n.result_type().dtype)) return of_one<kApply>(n);
  each_element(n, {0}, n.result_type().dtype, [](const Values& v) { return v[0]; });
}

template <Value (*kApply)(Value)>
void of_kind(NodeContext& n) {
  each_element(n, {0}, n.dtype(0), [](const Values& v) { return kApply(v[0]); });
}

Value relu_of(Value x) { return is_float(x.dtype()) ? relu(x) : maximum(x, constant_like(x, 0.0)); }
Value reciprocal(Value x) { return 1.0 / x; }
// torch gives 0 for NaN.
Value sign_of(Value x) {
  return is_float(x.dtype()) ? where(is_nan(x), constant_like(x, 0.0), sign(x)) : sign(x);
}
Value is_inf(Value x) { return is_infinite(x, true, true); }

// Both give a small x back to its last bit: what rounding did to 1 + x, or to e^x, is divided out.
Value log1p(Value x) {
  const Value y = x + 1.0, infinity = constant_like(x, HUGE_VAL);
  const Value is_same = eq(y, constant_like(y, 1.0));
  return where(is_same, x, where(eq(y, infinity), y, log(y) * (x / (y - 1.0))));
}

Value expm1(Value x) {
  const Value y = exp(x), near = (y - 1.0) * (x / log(y));
  const Value is_same = eq(y, constant_like(y, 1.0)), is_near = lt(abs(x), constant_like(x, 1.0));
  return where(is_same, x, where(is_near, near, y - 1.0));
}

GeluForm gelu_form(const NodeContext& n, size_t argument) {
  const std::string form = n.has(argument) ? n.text(argument) : "none";
  check(form == "none" || form == "tanh", "GELU is approximated by '{}'", form);
  return form == "tanh" ? GeluForm::kTanh : GeluForm::kErf;
}

void gelu_of(NodeContext& n) {
  const GeluForm form = gelu_form(n, 1);
  each_element(n, {0}, n.result_type().dtype, [&](const Values& v) { return gelu(v[0], form); });
}

// The gradient of `apply` of argument 1, where argument 0 is that of its result.
template <typename F>
void gradient_through(NodeContext& n, F&& apply) {
  each_element(n, {0, 1}, n.result_type().dtype, [&](const Values& v) {
    const size_t first = n.graph().nodes().size();
    const Value y = apply(v[1]);
    return gradients_of(y, v[0], {v[1]}, first)[0];
  });
}

void gelu_backward(NodeContext& n) {
  const GeluForm form = gelu_form(n, 2);
  gradient_through(n, [&](Value x) { return gelu(x, form); });
}

void silu_backward(NodeContext& n) {
  gradient_through(n, [](Value x) { return silu(x); });
}

// Nothing flows where argument 1 is not above the threshold; a NaN there lets it flow.
void threshold_backward(NodeContext& n) {
  const double threshold = n.number_at(2);
  each_element(n, {0, 1}, n.result_type().dtype, [&](const Values& v) {
    const Value is_below = le(v[1], constant(n.graph(), {v[1].dtype(), {}}, threshold));
    return where(is_below, constant(n.graph(), {v[0].dtype(), {}}, 0.0), v[0]);
  });
}

// Nothing flows where argument 1 is at a bound or beyond; a NaN there lets it flow.
void hardtanh_backward(NodeContext& n) {
  const double low = n.number_at(2), high = n.number_at(3);
  each_element(n, {0, 1}, n.result_type().dtype, [&](const Values& v) {
    const auto bound = [&](double at) { return constant(n.graph(), {v[1].dtype(), {}}, at); };
    const Value is_beyond = logical_or(le(v[1], bound(low)), ge(v[1], bound(high)));
    return where(is_beyond, constant(n.graph(), {v[0].dtype(), {}}, 0.0), v[0]);
  });
}

// elu(x, alpha, scale, input scale)
void elu(NodeContext& n) {
  const double scale = n.number_at(2), below = n.number_at(1) * scale, input_scale = n.number_at(3);
  each_element(n, {0}, n.result_type().dtype, [&](const Values& v) {
    const Value is_above = gt(v[0], constant_like(v[0], 0.0));
    return where(is_above, v[0] * scale, expm1(v[0] * input_scale) * below);
  });
}

void leaky_relu(NodeContext& n) {
  const double slope = n.number_at(1);
  each_element(n, {0}, n.result_type().dtype, [&](const Values& v) {
    return where(gt(v[0], constant_like(v[0], 0.0)), v[0], v[0] * slope);
  });
}

void sigmoid_backward(NodeContext& n) {
  each_element(n, {0, 1}, n.result_type().dtype, [](const Values& v) {
    return v[0] * ((1.0 - v[1]) * v[1]);
  });
}

void tanh_backward(NodeContext& n) {
  each_element(
      n, {0, 1}, n.result_type().dtype, [](const Values& v) { return v[0] * (1.0 - v[1] * v[1]); });
}

// dy mask scale
void dropout_backward(NodeContext& n) {
  const double scale = n.number_at(2);
  each_element(
      n, {0, 1}, n.result_type().dtype, [&](const Values& v) { return v[0] * v[1] * scale; });
}

// ridge::dropout(self, rng, p, key) -> y, mask; rng: {seed, step, 0}.
void dropout_of(NodeContext& n) {
  Dropout op;
  op.p = n.number_at(2);
  op.key = fmt::format("torch {}", n.integer(3));
  const Value x = n.value(0), rng = n.value(1);
  n.give(0, add_node(op, {x, rng}));
  if (!n.wants(1)) return;
  // Ones are 0 only where they are not kept.
  const Value ones = constant(n.graph(), {DType::kF32, x.shape()}, 1.0);
  n.give(1, ne(add_node(op, {ones, rng}), constant_like(ones, 0.0)));
}

constexpr OpRow kFunctionOps[] = {
    {"abs.default", of_one<abs>},
    {"acos.default", of_float<acos>},
    {"asin.default", of_float<asin>},
    {"atan.default", of_float<atan>},
    {"ceil.default", rounded<ceil>},
    {"cos.default", of_float<cos>},
    {"elu.default", elu},
    {"erf.default", of_float<erf>},
    {"exp.default", of_float<exp>},
    {"expm1.default", of_float<expm1>},
    {"floor.default", rounded<floor>},
    {"gelu.default", gelu_of},
    {"gelu_backward.default", gelu_backward},
    {"isinf.default", of_kind<is_inf>},
    {"isnan.default", of_kind<is_nan>},
    {"leaky_relu.default", leaky_relu},
    {"log.default", of_float<log>},
    {"log1p.default", of_float<log1p>},
    {"native_dropout_backward.default", dropout_backward},
    {"neg.default", of_one<neg>},
    {"ridge.dropout", dropout_of},
    {"reciprocal.default", of_float<reciprocal>},
    {"relu.default", of_one<relu_of>},
    {"round.default", rounded<round_half_even>},
    {"rsqrt.default", of_float<rsqrt>},
    {"sigmoid.default", of_float<sigmoid>},
    {"sigmoid_backward.default", sigmoid_backward},
    {"sign.default", of_one<sign_of>},
    {"silu.default", of_float<silu>},
    {"silu_backward.default", silu_backward},
    {"sin.default", of_float<sin>},
    {"sqrt.default", of_float<sqrt>},
    {"tan.default", of_float<tan>},
    {"tanh.default", of_float<tanh>},
    {"tanh_backward.default", tanh_backward},
    {"threshold_backward.default", threshold_backward},
    {"hardtanh_backward.default", hardtanh_backward},
    {"trunc.default", rounded<trunc>},
};

}  // namespace

std::span<const OpRow> function_ops() { return kFunctionOps; }

}  // namespace ridge::aten
