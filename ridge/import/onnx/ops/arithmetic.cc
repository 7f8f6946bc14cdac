// Operators of arithmetic: sums, products, quotients, powers, rounding.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/each_element.h"

namespace ridge::onnx {
namespace {

using Unary = Value (*)(Value);
using Binary = Value (*)(Value, Value);

template <Unary kApply>
void unary(NodeContext& n) {
  each_element(n, [](Value x) { return kApply(x); });
}

// Two inputs, or any number of them one after another.
template <Binary kApply>
void chain(NodeContext& n) {
  each_element(n, [](const std::vector<Value>& values) {
    Value result = values[0];
    for (size_t i = 1; i < values.size(); ++i) result = kApply(result, values[i]);
    return result;
  });
}

Value quotient(Value a, Value b) { return is_float(a.dtype()) ? div(a, b) : divide_integers(a, b); }

void mean(NodeContext& n) {
  each_element(n, [](const std::vector<Value>& values) {
    Value sum = values[0];
    for (size_t i = 1; i < values.size(); ++i) sum = sum + values[i];
    return sum / static_cast<double>(values.size());
  });
}

void pow(NodeContext& n) {
  const Known* exponent = n.known(1);
  if (exponent != nullptr && exponent->elements() == 1 && exponent->rank() <= n.rank(0)) {
    if (n.is_image(0)) return n.give_image(0, power(n.image(0), exponent->at(0)));
    return n.give(power(n.value(0), exponent->at(0)));
  }
  each_element(n, [](const std::vector<Value>& values) {
    check(values.size() == 2, "it has {} inputs", values.size());
    return power(values[0], values[1]);
  });
}

void mod(NodeContext& n) {
  const bool by_sign_of_dividend = n.integer("fmod", 0) != 0;
  each_element(n, [&](const std::vector<Value>& values) {
    check(values.size() == 2, "it has {} inputs", values.size());
    check(by_sign_of_dividend || is_integer(values[0].dtype()), "floats need fmod = 1");
    return by_sign_of_dividend ? remainder(values[0], values[1])
                               : floored_remainder(values[0], values[1]);
  });
}

Value reciprocal(Value x) { return 1.0 / x; }

Value rounded(Value x) { return is_float(x.dtype()) ? round_half_even(x) : x; }

void identity(NodeContext& n) { n.give(0, n.datum(0)); }

// The rule of dropout where nothing is trained; its mask keeps everything.
void dropout(NodeContext& n) {
  const Known* training = n.known(2);
  check(!n.has(2) || (training != nullptr && training->elements() == 1 && training->at(0) == 0.0),
        "it is asked to train");
  n.give(0, n.datum(0));
  if (n.wants(1)) n.give(1, constant(n.graph(), {DType::kBool, n.shape(0)}, 1.0));
}

void cast_to(NodeContext& n, DType to) {
  if (const Known* known = n.known(0)) {
    if (known->dtype() == to) return n.give(0, n.datum(0));
    if (known->is_empty()) return n.give(Known::empty(to, known->shape()));
  }
  each_element(n, [&](const std::vector<Value>& values) { return cast(values[0], to); });
}

void cast(NodeContext& n) {
  const int64_t to = n.integer("to");
  const auto dtype = dtype_of_onnx(to);
  check(dtype.has_value(), "dtype {} is not supported", onnx_type_name(to));
  cast_to(n, *dtype);
}

void cast_like(NodeContext& n) {
  const DType to = n.dtype(1);
  if (n.is_image(0)) return n.give_image(0, ridge::cast(n.image(0), to));
  n.give(ridge::cast(n.value(0), to));
}

constexpr OpRow kArithmeticOps[] = {
    {"Abs", unary<ridge::abs>},
    {"Add", chain<ridge::add>},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"Ceil", unary<ridge::ceil>},
    {"Div", chain<quotient>},
    {"Dropout", dropout},
    {"Floor", unary<ridge::floor>},
    {"Identity", identity},
    {"Max", chain<maximum>},
    {"Mean", mean},
    {"Min", chain<minimum>},
    {"Mod", mod},
    {"Mul", chain<ridge::mul>},
    {"Neg", unary<neg>},
    {"Pow", pow},
    {"Reciprocal", unary<reciprocal>},
    {"Round", unary<rounded>},
    {"Sign", unary<ridge::sign>},
    {"Sqrt", unary<ridge::sqrt>},
    {"Sub", chain<ridge::sub>},
    {"Sum", chain<ridge::add>},
};

}  // namespace

std::span<const OpRow> arithmetic_ops() { return kArithmeticOps; }

std::span<const OpRow> function_ops() {
  static constexpr OpRow kFunctionOps[] = {
      {"Acos", unary<ridge::acos>},
      {"Acosh", unary<ridge::acosh>},
      {"Asin", unary<ridge::asin>},
      {"Asinh", unary<ridge::asinh>},
      {"Atan", unary<ridge::atan>},
      {"Atanh", unary<ridge::atanh>},
      {"Cos", unary<ridge::cos>},
      {"Cosh", unary<ridge::cosh>},
      {"Erf", unary<ridge::erf>},
      {"Exp", unary<ridge::exp>},
      {"Log", unary<ridge::log>},
      {"Sin", unary<ridge::sin>},
      {"Sinh", unary<ridge::sinh>},
      {"Tan", unary<ridge::tan>},
      {"Tanh", unary<ridge::tanh>},
  };
  return kFunctionOps;
}

}  // namespace ridge::onnx
