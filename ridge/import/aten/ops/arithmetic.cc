// Arithmetic of two operands, choice, and copies.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"
#include "ridge/import/builders/functions.h"

namespace ridge::aten {
namespace {

using Values = std::vector<Value>;

// Computed in the dtype of the result, which torch rounds to once.
template <Value (*kApply)(Value, Value)>
void of_two(NodeContext& n) {
  each_element(
      n, {0, 1}, n.result_type().dtype, [](const Values& v) { return kApply(v[0], v[1]); });
}

DType arithmetic_dtype(const NodeContext& n) {
  const DType dtype = n.result_type().dtype;
  check(dtype != DType::kBool, "arithmetic of bools is not supported");
  return dtype;
}

// self + alpha other
template <Value (*kApply)(Value, Value)>
void with_alpha(NodeContext& n) {
  const double alpha = n.has(2) ? n.number_at(2) : 1.0;
  each_element(n, {0, 1}, arithmetic_dtype(n), [&](const Values& v) {
    return kApply(v[0], alpha == 1.0 ? v[1] : v[1] * alpha);
  });
}

void mul_of(NodeContext& n) {
  if (n.result_type().dtype == DType::kBool)
    return each_element(
        n, {0, 1}, DType::kBool, [](const Values& v) { return logical_and(v[0], v[1]); });
  of_two<mul>(n);
}

void rsub(NodeContext& n) {
  const double alpha = n.has(2) ? n.number_at(2) : 1.0;
  each_element(n, {0, 1}, arithmetic_dtype(n), [&](const Values& v) {
    return v[1] - (alpha == 1.0 ? v[0] : v[0] * alpha);
  });
}

void div_of(NodeContext& n) {
  check(is_float(n.result_type().dtype), "the quotient is {}", name_of(n.result_type().dtype));
  of_two<div>(n);
}

// div(self, other, rounding_mode) of integers.
void div_rounded(NodeContext& n) {
  if (!n.has(2)) return div_of(n);
  const std::string mode = n.text(2);
  const DType dtype = arithmetic_dtype(n);
  check(is_integer(dtype), "rounded quotients of {} are not supported", name_of(dtype));
  check(mode == "floor" || mode == "trunc", "it is rounded by '{}'", mode);
  each_element(n, {0, 1}, dtype, [&](const Values& v) {
    const Shape shape = broadcast_shape(v[0].shape(), v[1].shape(), "div");
    const Value a = broadcast(v[0], shape), b = broadcast(v[1], shape);
    const Value quotient = divide_integers(a, b), rest = a - quotient * b;
    if (mode == "trunc") return quotient;
    const Value zero = constant_like(rest, 0.0);
    const Value is_above = logical_and(ne(rest, zero), exclusive_or(lt(rest, zero), lt(b, zero)));
    return where(is_above, quotient - 1.0, quotient);
  });
}

template <Value (*kApply)(Value, Value)>
void remainder_of(NodeContext& n) {
  each_element(n, {0, 1}, arithmetic_dtype(n), [](const Values& v) {
    const Shape shape = broadcast_shape(v[0].shape(), v[1].shape(), "remainder");
    return kApply(broadcast(v[0], shape), broadcast(v[1], shape));
  });
}

void where_of(NodeContext& n) {
  const DType dtype = n.result_type().dtype;
  each_element(n, {0, 1, 2}, {DType::kBool, dtype, dtype}, [](const Values& v) {
    return where(v[0], v[1], v[2]);
  });
}

void clamp(NodeContext& n) {
  std::vector<size_t> operands{0};
  const bool has_min = n.has(1), has_max = n.has(2);
  if (has_min) operands.push_back(1);
  if (has_max) operands.push_back(2);
  each_element(n, operands, arithmetic_dtype(n), [&](const Values& v) {
    Value x = v[0];
    if (has_min) x = maximum(x, v[1]);
    if (has_max) x = minimum(x, v.back());
    return x;
  });
}

// Argument kArgument as the result's dtype. Floats become short integers by the lower bits of long
// ones: -1.0 is 255 as u8.
template <size_t kArgument>
void copied(NodeContext& n) {
  const DType dtype = n.result_type().dtype;
  const bool is_cut = is_float(n.dtype(kArgument)) && is_integer(dtype) && size_of(dtype) < 4;
  each_element(n, {kArgument}, is_cut ? DType::kI64 : dtype, [](const Values& v) { return v[0]; });
}

void power(NodeContext& n) {
  const DType dtype = n.result_type().dtype;
  check(is_float(dtype), "it is of {}", name_of(dtype));
  if (!n.is_tensor(1)) {
    const double exponent = n.number_at(1);
    return each_element(n, {0}, dtype, [&](const Values& v) { return power(v[0], exponent); });
  }
  each_element(n, {0, 1}, dtype, [](const Values& v) {
    const Shape shape = broadcast_shape(v[0].shape(), v[1].shape(), "pow");
    return power(broadcast(v[0], shape), broadcast(v[1], shape));
  });
}

// addcmul(self, a, b, value): self + value a b
void addcmul(NodeContext& n) {
  const double factor = n.has(3) ? n.number_at(3) : 1.0;
  each_element(n, {0, 1, 2}, arithmetic_dtype(n), [&](const Values& v) {
    return v[0] + (factor == 1.0 ? v[1] : v[1] * factor) * v[2];
  });
}

constexpr OpRow kArithmeticOps[] = {
    {"add.Tensor", with_alpha<add>},
    {"add.Scalar", with_alpha<add>},
    {"sub.Tensor", with_alpha<sub>},
    {"sub.Scalar", with_alpha<sub>},
    {"rsub.Tensor", rsub},
    {"rsub.Scalar", rsub},
    {"mul.Tensor", mul_of},
    {"mul.Scalar", mul_of},
    {"div.Tensor", div_of},
    {"div.Tensor_mode", div_rounded},
    {"div.Scalar", div_of},
    {"fmod.Tensor", remainder_of<remainder>},
    {"fmod.Scalar", remainder_of<remainder>},
    {"remainder.Tensor", remainder_of<floored_remainder>},
    {"remainder.Scalar", remainder_of<floored_remainder>},
    {"maximum.default", of_two<maximum>},
    {"minimum.default", of_two<minimum>},
    {"where.self", where_of},
    {"where.ScalarOther", where_of},
    {"where.ScalarSelf", where_of},
    {"clamp.default", clamp},
    {"clamp.Tensor", clamp},
    {"clamp_min.default", clamp},
    {"hardtanh.default", clamp},
    {"addcmul.default", addcmul},
    {"pow.Tensor_Scalar", power},
    {"pow.Tensor_Tensor", power},
    {"alias.default", copied<0>},
    {"clone.default", copied<0>},
    {"copy.default", copied<1>},
    {"detach.default", copied<0>},
    {"lift_fresh_copy.default", copied<0>},
    {"_to_copy.default", copied<0>},
};

}  // namespace

std::span<const OpRow> arithmetic_ops() { return kArithmeticOps; }

}  // namespace ridge::aten
