// Elementwise arithmetic, mathematical functions, comparison, logic, selection and casts. Every
// input has the shape of the result; the builders below broadcast by NumPy's rule first.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// The one type of all inputs; UserError opened by `op` when they differ.
const TensorType& common_type(std::span<const TensorType> inputs, std::string_view op);

/// All inputs of one type; the result has it too, or, where kResult is given, another dtype.
template <typename Self, DType... kResult>
class Elementwise : public OpOf<Self> {
 public:
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override {
    TensorType type = common_type(inputs, Self::kTraits.name);
    ((type.dtype = kResult), ...);
    return {type};
  }
};

template <typename Self>
using Comparison = Elementwise<Self, DType::kBool>;

constexpr OpTraits unary_traits(std::string_view name,
                                DTypeSet dtypes,
                                OpClass op_class,
                                Gradient gradient,
                                Linearity linear = {}) {
  return {.name = name,
          .min_inputs = 1,
          .max_inputs = 1,
          .dtypes = dtypes,
          .op_class = op_class,
          .gradient = gradient,
          .elementwise = true,
          .linear = linear};
}

constexpr OpTraits binary_traits(std::string_view name,
                                 DTypeSet dtypes,
                                 OpClass op_class,
                                 Gradient gradient,
                                 Linearity linear = {}) {
  OpTraits traits = unary_traits(name, dtypes, op_class, gradient, linear);
  traits.min_inputs = traits.max_inputs = 2;
  return traits;
}

// ---- one input ----

class Neg final : public Elementwise<Neg> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("neg", kNumbers, OpClass::kArithmetic, Gradient::kRule, {.joint = 1});
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Abs final : public Elementwise<Abs> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("abs", kNumbers, OpClass::kArithmetic, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// -1, 0 or 1; NaN stays NaN.
class Sign final : public Elementwise<Sign> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("sign", kNumbers, OpClass::kArithmetic, Gradient::kZero);
};

class Exp final : public Elementwise<Exp> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("exp", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Log final : public Elementwise<Log> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("log", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Sin final : public Elementwise<Sin> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("sin", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Cos final : public Elementwise<Cos> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("cos", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Tanh final : public Elementwise<Tanh> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("tanh", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Erf final : public Elementwise<Erf> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("erf", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Sqrt final : public Elementwise<Sqrt> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("sqrt", kFloats, OpClass::kArithmetic, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// 1 / sqrt(x), by those two operations.
class Rsqrt final : public Elementwise<Rsqrt> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("rsqrt", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// True where the element is neither infinite nor NaN.
class IsFinite final : public Comparison<IsFinite> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("is_finite", kFloats, OpClass::kMove, Gradient::kZero);
};

class LogicalNot final : public Elementwise<LogicalNot> {
 public:
  static constexpr OpTraits kTraits = unary_traits("not", kBools, OpClass::kMove, Gradient::kZero);
};

/// The elements as another dtype, by the rules of base/dtype.h.
class Cast final : public OpOf<Cast> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("cast", kAnyDType, OpClass::kMove, Gradient::kRule, {.joint = 1});
  DType to = DType::kF32;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("to", to); }
};

// ---- two inputs ----

class Add final : public Elementwise<Add> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("add", kNumbers, OpClass::kArithmetic, Gradient::kRule, {.joint = 3});
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Sub final : public Elementwise<Sub> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("sub", kNumbers, OpClass::kArithmetic, Gradient::kRule, {.joint = 3});
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Mul final : public Elementwise<Mul> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("mul", kNumbers, OpClass::kArithmetic, Gradient::kRule, {.each = 3});
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Div final : public Elementwise<Div> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("div", kFloats, OpClass::kArithmetic, Gradient::kRule, {.each = 1});
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// a - b trunc(a / b), exactly: the C library's fmod. It has the sign of a.
class Fmod final : public Elementwise<Fmod> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("fmod", kFloats, OpClass::kArithmetic, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// a to the power b, by the C library's pow: exact where the power has few enough digits. The
/// gradient of a is 0 where b is, and that of b where a is 0 and b not negative.
class Pow final : public Elementwise<Pow> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("pow", kFloats, OpClass::kTranscendental, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// NaN when either is NaN. Where both are equal each gets half of the gradient.
class Maximum final : public Elementwise<Maximum> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("maximum", kNumbers, OpClass::kMove, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// The gradient follows the rule of Maximum.
class Minimum final : public Elementwise<Minimum> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("minimum", kNumbers, OpClass::kMove, Gradient::kRule);
  std::vector<Value> vjp(const VjpContext& c) const override;
};

class Equal final : public Comparison<Equal> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("eq", kNumbers, OpClass::kMove, Gradient::kZero);
};

class NotEqual final : public Comparison<NotEqual> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("ne", kNumbers, OpClass::kMove, Gradient::kZero);
};

class Less final : public Comparison<Less> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("lt", kNumbers, OpClass::kMove, Gradient::kZero);
};

class LessEqual final : public Comparison<LessEqual> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("le", kNumbers, OpClass::kMove, Gradient::kZero);
};

class Greater final : public Comparison<Greater> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("gt", kNumbers, OpClass::kMove, Gradient::kZero);
};

class GreaterEqual final : public Comparison<GreaterEqual> {
 public:
  static constexpr OpTraits kTraits =
      binary_traits("ge", kNumbers, OpClass::kMove, Gradient::kZero);
};

class LogicalAnd final : public Elementwise<LogicalAnd> {
 public:
  static constexpr OpTraits kTraits = binary_traits("and", kBools, OpClass::kMove, Gradient::kZero);
};

class LogicalOr final : public Elementwise<LogicalOr> {
 public:
  static constexpr OpTraits kTraits = binary_traits("or", kBools, OpClass::kMove, Gradient::kZero);
};

// ---- selection ----

/// inputs[0] (bool) ? inputs[1] : inputs[2], element by element; the last two of one type.
class Where final : public OpOf<Where> {
 public:
  static constexpr OpTraits kTraits{.name = "where",
                                    .min_inputs = 3,
                                    .max_inputs = 3,
                                    .dtypes = kBools,
                                    .gradient = Gradient::kRule,
                                    .elementwise = true,
                                    .linear = {.joint = 6}};
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
};

// ---- builders; those of two and three inputs broadcast ----

Value neg(Value x);
Value abs(Value x);
Value sign(Value x);
Value exp(Value x);
Value log(Value x);
Value sin(Value x);
Value cos(Value x);
Value tanh(Value x);
Value erf(Value x);
Value sqrt(Value x);
Value rsqrt(Value x);
Value is_finite(Value x);
Value logical_not(Value x);
/// x itself when it has that dtype already.
Value cast(Value x, DType to);

Value add(Value a, Value b);
Value sub(Value a, Value b);
Value mul(Value a, Value b);
Value div(Value a, Value b);
Value fmod(Value a, Value b);
Value pow(Value a, Value b);
Value maximum(Value a, Value b);
Value minimum(Value a, Value b);
Value eq(Value a, Value b);
Value ne(Value a, Value b);
Value lt(Value a, Value b);
Value le(Value a, Value b);
Value gt(Value a, Value b);
Value ge(Value a, Value b);
Value logical_and(Value a, Value b);
Value logical_or(Value a, Value b);
Value where(Value condition, Value a, Value b);

inline Value operator-(Value x) { return neg(x); }
inline Value operator+(Value a, Value b) { return add(a, b); }
inline Value operator-(Value a, Value b) { return sub(a, b); }
inline Value operator*(Value a, Value b) { return mul(a, b); }
inline Value operator/(Value a, Value b) { return div(a, b); }
Value operator+(Value a, double b);
Value operator-(Value a, double b);
Value operator*(Value a, double b);
Value operator/(Value a, double b);
Value operator-(double a, Value b);
Value operator/(double a, Value b);

}  // namespace ridge
