#include "ridge/import/builders/functions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// Beyond it every f64 is a whole number, and i64 holds all below.
constexpr double kWhole = 4503599627370496.0;  // 2^52

// `body`, which computes in f64, for an x of any dtype.
template <typename F>
Value in_f64(Value x, F&& body) {
  return cast(body(cast(x, DType::kF64)), x.dtype());
}

// A result as it is, but 0 with the sign of the x that it was made of.
Value with_sign_of(Value x, Value result) {
  return where(eq(result, constant_like(x, 0.0)), x * 0.0, result);
}

Value number(Value condition, Value like) { return cast(condition, like.dtype()); }

// c[0] + c[1] x + c[2] x^2 + ...
Value polynomial(Value x, std::initializer_list<double> coefficients) {
  Value sum;
  for (auto c = std::rbegin(coefficients); c != std::rend(coefficients); ++c)
    sum = sum ? sum * x + *c : constant_like(x, *c);
  return sum;
}

// The argument, an f64, is halved three times before the series: atan(x) = 2 atan(x / (1 + sqrt(1 +
// x^2))).
Value arc_tangent(Value x) {
  const Value one = constant_like(x, 1.0);
  const Value is_large = gt(abs(x), one);
  Value t = where(is_large, 1.0 / x, x);
  constexpr int kHalvings = 3;
  for (int i = 0; i < kHalvings; ++i) t = t / (sqrt(t * t + 1.0) + 1.0);
  const Value t2 = t * t;
  const Value series =
      t *
      polynomial(t2, {1.0, -1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15});
  const Value small = series * std::exp2(kHalvings);
  const Value quarter = sign(x) * (std::numbers::pi / 2);
  return where(is_large, quarter - small, small);
}

bool is_narrow(DType dtype) { return is_float(dtype) && dtype != DType::kF64; }

// The quotient of integers, cut off after it was rounded to f64.
Value cut_quotient(Value a, Value b) {
  return cast(div(cast(a, DType::kF64), cast(b, DType::kF64)), a.dtype());
}

// -|x|: the absolute value of the least integer is none.
Value negative_size(Value x) { return where(lt(x, constant_like(x, 0.0)), x, neg(x)); }

// The quotient of i64, which have more digits than an f64: what `quotient` leaves is divided again,
// and then at most one is missing, or too much.
Value exact_quotient(Value a, Value b, Value quotient) {
  quotient = quotient + cut_quotient(a - quotient * b, b);
  const Value rest = a - quotient * b, zero = constant_like(rest, 0.0);
  const Value is_past = logical_and(ne(rest, zero), exclusive_or(lt(rest, zero), lt(a, zero)));
  const Value is_short = le(negative_size(rest), negative_size(b));
  const Value step = sign(a) * sign(b);
  return quotient + where(is_past, neg(step), where(is_short, step, zero));
}

}  // namespace

Value trunc(Value x) {
  const Value whole = with_sign_of(x, cast(cast(x, DType::kI64), x.dtype()));
  return where(lt(abs(x), constant_like(x, kWhole)), whole, x);
}

Value floor(Value x) {
  const Value whole = trunc(x);
  return whole - number(lt(x, whole), x);
}

Value ceil(Value x) {
  const Value whole = trunc(x);
  return where(gt(x, whole), whole + 1.0, whole);
}

Value round_half_even(Value x) {
  const Value low = floor(x);
  const Value part = x - low;
  const Value half = constant_like(x, 0.5);
  const Value low_is_odd = ne(floor(low * 0.5) * 2.0, low);
  const Value is_up = logical_or(gt(part, half), logical_and(eq(part, half), low_is_odd));
  return where(is_finite(x), with_sign_of(x, low + number(is_up, x)), x);
}

Value divide_integers(Value a, Value b) {
  const Value quotient = cut_quotient(a, b);
  if (a.dtype() != DType::kI64) return quotient;
  const Shape shape = quotient.shape();
  return exact_quotient(broadcast(a, shape), broadcast(b, shape), quotient);
}

Value remainder(Value a, Value b) {
  return is_float(a.dtype()) ? fmod(a, b) : a - divide_integers(a, b) * b;
}

Value floored_remainder(Value a, Value b) {
  const Value rest = remainder(a, b);
  const Value zero = constant_like(rest, 0.0);
  const Value is_other_sign = exclusive_or(lt(rest, zero), lt(broadcast(b, rest.shape()), zero));
  const Value is_wrong = logical_and(ne(rest, zero), is_other_sign);
  return where(is_wrong, rest + b, rest);
}

Value power(Value x, double y) {
  constexpr double kMostProducts = 64;
  if (y == 1.0) return x;
  if (y == 0.0) return constant_like(x, 1.0);
  if (is_float(x.dtype())) {
    if (y == 0.5) return sqrt(x);
    if (y == -0.5) return rsqrt(x);
    if (y == -1.0) return 1.0 / x;
  }
  if (y > 0.0 && y <= kMostProducts && y == std::floor(y)) {
    Value result;  // by squares
    for (auto rest = static_cast<int64_t>(y); rest > 0; rest /= 2) {
      if (rest % 2 == 1) result = result ? result * x : x;
      if (rest > 1) x = x * x;
    }
    return result;
  }
  const DType dtype = is_narrow(x.dtype()) ? DType::kF32 : DType::kF64;
  return power(x, constant(x.graph(), {dtype, {}}, y));
}

Value power(Value x, Value y) {
  const DType wide = is_narrow(x.dtype()) && is_narrow(y.dtype()) ? DType::kF32 : DType::kF64;
  return cast(pow(cast(x, wide), cast(y, wide)), x.dtype());
}

Value tan(Value x) {
  return in_f64(x, [](Value wide) { return sin(wide) / cos(wide); });
}
Value asin(Value x) {
  return in_f64(
      x, [](Value wide) { return arc_tangent(wide / (sqrt(1.0 - wide * wide) + 1.0)) * 2.0; });
}
Value acos(Value x) {
  return in_f64(x, [](Value wide) {
    return (std::numbers::pi / 2) - arc_tangent(wide / (sqrt(1.0 - wide * wide) + 1.0)) * 2.0;
  });
}
Value atan(Value x) { return in_f64(x, arc_tangent); }
Value sinh(Value x) {
  return in_f64(x, [](Value wide) { return (exp(wide) - exp(neg(wide))) * 0.5; });
}
Value cosh(Value x) {
  return in_f64(x, [](Value wide) { return (exp(wide) + exp(neg(wide))) * 0.5; });
}
Value asinh(Value x) {
  return in_f64(x, [](Value wide) {
    const Value size = abs(wide);
    return sign(wide) * log(size + sqrt(size * size + 1.0));
  });
}
Value acosh(Value x) {
  return in_f64(x, [](Value wide) { return log(wide + sqrt(wide * wide - 1.0)); });
}
Value atanh(Value x) {
  return in_f64(x, [](Value wide) { return log((wide + 1.0) / (1.0 - wide)) * 0.5; });
}

Value is_nan(Value x) { return ne(x, x); }

Value is_infinite(Value x, bool positive, bool negative) {
  Value found = logical_not(logical_or(is_finite(x), is_nan(x)));
  const Value zero = constant_like(x, 0.0);
  if (!positive) found = logical_and(found, lt(x, zero));
  if (!negative) found = logical_and(found, gt(x, zero));
  return found;
}

Value exclusive_or(Value a, Value b) {
  return logical_and(logical_or(a, b), logical_not(logical_and(a, b)));
}

}  // namespace ridge
