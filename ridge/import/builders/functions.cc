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

// sin(x + quarters pi / 2) of an f64. The multiple of pi / 2 that is nearest is taken off in three
// parts (Cody and Waite, "Software manual for the elementary functions", 1980): good for |x| < 8e8,
// and NaN beyond.
Value sine(Value x, double quarters) {
  constexpr double kHigh = 0x1.921fb4p+0;    // the first 24 bits of pi / 2
  constexpr double kMiddle = 0x1.4442dp-24;  // the next 24
  constexpr double kLow = 0x1.8469898cc517p-48;
  const Value count = round_half_even(x * (2.0 / std::numbers::pi));
  const Value r = x - count * kHigh - count * kMiddle - count * kLow;
  const Value r2 = r * r;
  const Value sin_r = r * polynomial(r2,
                                     {1.0,
                                      -1.0 / 6,
                                      1.0 / 120,
                                      -1.0 / 5040,
                                      1.0 / 362880,
                                      -1.0 / 39916800,
                                      1.0 / 6227020800,
                                      -1.0 / 1307674368000});
  const Value cos_r = polynomial(r2,
                                 {1.0,
                                  -1.0 / 2,
                                  1.0 / 24,
                                  -1.0 / 720,
                                  1.0 / 40320,
                                  -1.0 / 3628800,
                                  1.0 / 479001600,
                                  -1.0 / 87178291200,
                                  1.0 / 20922789888000});
  const Value turned = count + quarters, quadrant = turned - floor(turned * 0.25) * 4.0;
  const Value odd =
      logical_or(eq(quadrant, constant_like(x, 1.0)), eq(quadrant, constant_like(x, 3.0)));
  const Value positive = where(odd, cos_r, sin_r);
  const Value result = where(lt(quadrant, constant_like(x, 2.0)), positive, neg(positive));
  const Value nan = constant_like(x, std::numeric_limits<double>::quiet_NaN());
  return where(lt(abs(x), constant_like(x, 8e8)), result, nan);
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

// A result that misses a whole number by the roundings of exp and log alone becomes that number,
// before a cast cuts the fraction off.
Value without_rounding(Value x) {
  constexpr double kRounding = 1e-13;
  const Value nearest = round_half_even(x);
  return where(le(abs(x - nearest), abs(nearest) * kRounding), nearest, x);
}

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
  return power(x, constant(x.graph(), {DType::kF64, {}}, y));
}

Value power(Value x, Value y) {
  const DType dtype = x.dtype();
  const Shape shape = broadcast_shape(x.shape(), y.shape(), "pow");
  x = broadcast(cast(x, DType::kF64), shape);
  y = broadcast(cast(y, DType::kF64), shape);
  const Value zero = constant_like(x, 0.0), one = constant_like(x, 1.0);
  const Value far = abs(x);
  // The logarithm 0 of a 1 times an infinite y is NaN.
  const Value size = where(eq(far, one), one, exp(y * log(far)));
  const Value is_whole = eq(floor(y), y);
  const Value is_odd = logical_and(is_whole, ne(floor(y * 0.5) * 2.0, y));
  const Value nan = constant_like(x, std::numeric_limits<double>::quiet_NaN());
  const Value is_below = lt(x, zero);
  // -0.0 has a sign, too, which its reciprocal shows.
  const Value has_sign = logical_or(is_below, lt(1.0 / x, zero));
  const Value is_finite_below = logical_and(is_below, is_finite(x));
  const Value is_power = logical_or(is_whole, logical_not(is_finite_below));
  const Value result = where(is_power, where(logical_and(has_sign, is_odd), neg(size), size), nan);
  const Value exact = where(logical_or(eq(y, zero), eq(x, one)), one, result);
  return cast(is_float(dtype) ? exact : without_rounding(exact), dtype);
}

Value sin(Value x) {
  return in_f64(x, [](Value wide) { return with_sign_of(wide, sine(wide, 0.0)); });
}
Value cos(Value x) {
  return in_f64(x, [](Value wide) { return sine(wide, 1.0); });
}
Value tan(Value x) {
  return in_f64(x,
                [](Value wide) { return with_sign_of(wide, sine(wide, 0.0) / sine(wide, 1.0)); });
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
