// exp, log, tanh, erf and the activations built of them, for f32 without branches, so that loops
// over them are vectorised (but gelu_of's, which looks up numbers), and for f64 by libm. Each f32
// function is a fixed sequence of correctly rounded operations: the same bits on every machine.
// Powers alone, and sines of numbers beyond 8e8, are libm's in f32 too. The sequences are templates
// over the value: a float here, a recorded operation in the JIT compiler (jit/expression.h), which
// so makes the same bits. The elementwise ops that are such functions are listed at the end.
//
// Largest error against the correctly rounded value over all 2^32 floats, in units in the last
// place (tests/backend/math_test.cc takes a sample): exp, log, sin, cos 1, tanh, erf, sigmoid,
// silu, gelu and gelu by tanh 2. Coefficients are minimax fits of our own.
//
// Internal linkage, as kernel files share no code.
#pragma once

#include <cstdint>

#include "ridge/backend/cpu/isa/gelu_table.h"

namespace ridge::cpu {
namespace {

// The functions below consist of these, besides arithmetic and comparisons. Whole numbers are
// unsigned and wrap.
inline float sqrt_of(float x) { return __builtin_sqrtf(x); }
inline double sqrt_of(double x) { return __builtin_sqrt(x); }
inline float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float magnitude(float x) { return __builtin_fabsf(x); }
inline double magnitude(double x) { return __builtin_fabs(x); }
inline float copy_sign(float x, float sign) { return __builtin_copysignf(x, sign); }
inline float select(bool condition, float a, float b) { return condition ? a : b; }
inline double select(bool condition, double a, double b) { return condition ? a : b; }
inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
/// x, or the limit where it lies beyond; NaN stays NaN.
inline float at_least(float x, float limit) { return x < limit ? limit : x; }
inline double at_least(double x, double limit) { return x < limit ? limit : x; }
inline float at_most(float x, float limit) { return x > limit ? limit : x; }
/// x where it is below 0, else 0; of NaN, too.
inline float negative_part(float x) { return x < 0.0f ? x : 0.0f; }
/// Shifts x as a signed number; all machines shift and convert it alike.
inline uint32_t shift_signed_right(uint32_t x, int by) {
  return static_cast<uint32_t>(static_cast<int32_t>(x) >> by);
}
inline float float_of_signed(uint32_t x) { return static_cast<float>(static_cast<int32_t>(x)); }
/// The entry that the last four bits of the index say.
inline float look_up(const Table16& table, uint32_t index) { return table.of[index & 15u]; }

// ln 2 in two parts; the product of the first with an exponent is exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;

// Added to a number below 2^22, the sum's last bits are that number rounded to a whole one.
constexpr float kShift = 12582912.0f;  // 1.5 * 2^23

/// x 2^k for the whole number k in the last bits of `shifted`, |k| <= 252: rounded once, where
/// x 2^(k/2) is normal.
inline float scaled(float x, float shifted) {
  const uint32_t exponent = bits_of(shifted) - bits_of(kShift);
  const uint32_t half = shift_signed_right(exponent, 1);
  return x * from_bits((half + 127u) << 23) * from_bits((exponent - half + 127u) << 23);
}

// An exponential in two parts, so that something multiplied by it is rounded well even where the
// exponential itself is subnormal: it is scaled(fraction, shifted).
template <typename F>
struct Exponential {
  F fraction;
  F shifted;
};

// exp(x) = 2^k exp(r), |r| <= ln(2)/2, for x in [-174, 174], with k in the last bits of `shifted`
// as `shift` leaves it there.
template <typename F>
struct Reduced {
  F r;
  F shifted;
};

template <typename F>
inline Reduced<F> reduced(F x, float shift) {
  const F shifted = fma_of(x, 0x1.715476p+0f, shift);
  const F k = shifted - shift;
  const F r = fma_of(k, -kLn2High, x);
  return {fma_of(k, -kLn2Low, r), shifted};
}

template <typename F>
inline Exponential<F> exponential(F x) {
  const auto [r, shifted] = reduced(x, kShift);
  F p = fma_of(F(0x1.6ac682p-10f), r, 0x1.123ddep-7f);
  p = fma_of(p, r, 0x1.555858p-5f);
  p = fma_of(p, r, 0x1.55548cp-3f);
  p = fma_of(p, r, 0x1.fffffcp-2f);
  return {fma_of(r * r, p, r) + 1.0f, shifted};
}

// Zero below -104, where the nearest float is.
template <typename F>
inline F exp_of(F x) {
  const Exponential<F> e = exponential(at_most(at_least(x, -104.0f), 89.0f));
  return scaled(e.fraction, e.shifted);
}

// log(x) = k ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)).
template <typename F>
inline F log_of(F x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // the bits of sqrt(1/2)
  const auto is_tiny = x < 0x1p-126f;
  const auto bits = bits_of(select(is_tiny, x * 0x1p25f, x)) - kRootHalf;
  const F k = float_of_signed(shift_signed_right(bits, 23)) - select(is_tiny, F(25.0f), F(0.0f));
  const F f = from_bits((bits & 0x7fffffu) + kRootHalf) - 1.0f;
  const F square = f * f;
  F p = fma_of(F(-0x1.38b4dep-4f), f, 0x1.055b4ap-3f);
  p = fma_of(p, f, -0x1.0d8552p-3f);
  p = fma_of(p, f, 0x1.22da22p-3f);
  p = fma_of(p, f, -0x1.547244p-3f);
  p = fma_of(p, f, 0x1.99a008p-3f);
  p = fma_of(p, f, -0x1.000228p-2f);
  p = fma_of(p, f, 0x1.555554p-2f);
  F low = fma_of(k, kLn2Low, f * square * p);
  low = fma_of(square, -0.5f, low);
  F y = fma_of(k, kLn2High, f + low);
  y = select(x < __builtin_inff(), y, x);  // infinity and NaN
  y = select(x < 0.0f, F(__builtin_nanf("")), y);
  return select(x == 0.0f, F(-__builtin_inff()), y);
}

// An odd function y that tends to 1, given a = |x|, p and q with p/q = tanh(atanh(y)/2), hence
// y = 2pq / (p^2 + q^2): errors of p and q fade as y nears 1. Written as 1 - (q - p)^2 / (...), the
// last roundings fade as well. Where y is small they do not, so `near` serves there.
template <typename F, typename Mask>
inline F saturating(F p, F q, Mask is_near, F near, F x) {
  const F d = q - p;
  const F far = 1.0f - d * d / fma_of(p, p, q * q);
  return copy_sign(select(is_near, near, far), x);
}

// Below 1 a polynomial; else by a rational approximation of tanh(x/2).
template <typename F>
inline F tanh_of(F x) {
  F a = magnitude(x);
  a = at_most(a, 9.1f);
  const F z = a * a;
  F p = fma_of(F(0x1.d6b560p-14f), z, 0x1.e637c6p-6f);
  p = fma_of(p, z, 0x1.fffffap-1f);
  F q = fma_of(F(0x1.3ef09ep-19f), z, 0x1.39a526p-9f);
  q = fma_of(q, z, 0x1.cee30ap-3f);
  q = fma_of(q, z, 2.0f);
  F near = fma_of(F(-0x1.77db60p-12f), z, 0x1.2da42ap-9f);
  near = fma_of(near, z, -0x1.04607ep-7f);
  near = fma_of(near, z, 0x1.60097ap-6f);
  near = fma_of(near, z, -0x1.b9621ep-5f);
  near = fma_of(near, z, 0x1.110be2p-3f);
  near = fma_of(near, z, -0x1.55553cp-2f);
  return saturating(p * a, q, z < 1.0f, fma_of(a * z, near, a), x);
}

// Below 7/8 a polynomial; else by a rational approximation of tanh(atanh(erf(x))/2).
template <typename F>
inline F erf_of(F x) {
  F a = magnitude(x);
  a = at_most(a, 3.95f);
  const F z = a * a;
  F p = fma_of(F(0x1.36d986p-8f), z, 0x1.7d973cp-5f);
  p = fma_of(p, z, 0x1.dfe0b6p-2f);
  p = fma_of(p, z, 0x1.20ddb6p+0f);
  F q = fma_of(F(0x1.89cb50p-12f), z, 0x1.5c7b84p-6f);
  q = fma_of(q, z, 0x1.03933cp-3f);
  q = fma_of(q, z, 0x1.b8af3cp-1f);
  q = fma_of(q, z, 2.0f);
  F near = fma_of(F(-0x1.453724p-11f), z, 0x1.49c924p-8f);
  near = fma_of(near, z, -0x1.b6f336p-6f);
  near = fma_of(near, z, 0x1.ce211cp-4f);
  near = fma_of(near, z, -0x1.81270cp-2f);
  near = fma_of(near, z, 0x1.06eba6p-3f);
  return saturating(p * a, q, z < 0.765625f, fma_of(a, near, a), x);
}

inline double exp_of(double x) { return __builtin_exp(x); }
inline double log_of(double x) { return __builtin_log(x); }
inline double tanh_of(double x) { return __builtin_tanh(x); }
inline double erf_of(double x) { return __builtin_erf(x); }

// The C library's: a power that has few enough digits is exact, in f32 too.
inline float pow_of(float a, float b) { return __builtin_powf(a, b); }
inline double pow_of(double a, double b) { return __builtin_pow(a, b); }

// ---- sine and cosine ----
//
// They are computed in f64, those of f32 too: below kNear by a fixed sequence of operations, which
// loops vectorise, and beyond it by the C library, which knows pi to as many digits as it takes.
constexpr double kNear = 8e8;

/// sin(x + quarters pi / 2) of |x| < kNear. The multiple of pi / 2 that is nearest is taken off in
/// three parts (Cody and Waite, "Software manual for the elementary functions", 1980), of which the
/// first two times a number below 2^29 are exact.
inline double sine_near(double x, uint64_t quarters) {
  constexpr double kHigh = 0x1.921fb4p+0;    // the first 24 bits of pi / 2
  constexpr double kMiddle = 0x1.4442dp-24;  // the next 24
  constexpr double kLow = 0x1.8469898cc517p-48;
  // Added to a number below 2^51, the sum's last bits are that number rounded to a whole one.
  constexpr double kWhole = 0x1.8p52;
  const double shifted = fma_of(x, 0x1.45f306dc9c883p-1, kWhole);  // 2 / pi
  const double count = shifted - kWhole;
  const double r = fma_of(count, -kLow, fma_of(count, -kMiddle, fma_of(count, -kHigh, x)));
  const double z = r * r;
  double s = fma_of(-1.0 / 1307674368000, z, 1.0 / 6227020800);
  s = fma_of(s, z, -1.0 / 39916800);
  s = fma_of(s, z, 1.0 / 362880);
  s = fma_of(s, z, -1.0 / 5040);
  s = fma_of(s, z, 1.0 / 120);
  s = fma_of(s, z, -1.0 / 6);
  s = r * fma_of(s, z, 1.0);  // -0 for -0
  double c = fma_of(1.0 / 20922789888000, z, -1.0 / 87178291200);
  c = fma_of(c, z, 1.0 / 479001600);
  c = fma_of(c, z, -1.0 / 3628800);
  c = fma_of(c, z, 1.0 / 40320);
  c = fma_of(c, z, -1.0 / 720);
  c = fma_of(c, z, 1.0 / 24);
  c = fma_of(c, z, -0.5);
  c = fma_of(c, z, 1.0);
  const uint64_t quadrant = __builtin_bit_cast(uint64_t, shifted) + quarters;
  const double y = select((quadrant & 1u) != 0, c, s);
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, y) ^ ((quadrant & 2u) << 62));
}

/// False for NaN, too.
inline bool is_near(double x) { return magnitude(x) < kNear; }

inline double sin_of(double x) { return is_near(x) ? sine_near(x, 0) : __builtin_sin(x); }
inline double cos_of(double x) { return is_near(x) ? sine_near(x, 1) : __builtin_cos(x); }
inline float sin_of(float x) { return static_cast<float>(sin_of(static_cast<double>(x))); }
inline float cos_of(float x) { return static_cast<float>(cos_of(static_cast<double>(x))); }

inline double gelu_of(double x) { return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440); }

// The variance, of which the mean square around an estimate of the mean and what that estimate
// missed are known; rounding must not make it negative. NaN stays NaN.
inline double variance_of(double mean_square, double missed) {
  const double variance = mean_square - missed * missed;
  return variance < 0.0 ? 0.0 : variance;
}

// ---- activations that are x Phi(x) for a distribution Phi that is symmetric ----
//
// x Phi(x) = max(x, 0) - a Phi(-a), a = |x|, which does not cancel for negative x, and Phi(-a) =
// 1 / (1 + 2^w). The power is made 2^64 times smaller than it is, so that neither it nor the
// quotient leaves the normal numbers; the last fma makes up for that, rounding once, also to a
// subnormal result.
constexpr float kSmall = 0x1p-64f;
// Added to a number, the sum's last bits are 64 less than that number rounded to a whole one.
constexpr float kSmallShift = kShift - 64.0f;

/// x 2^k for the k in the last bits of `shifted`, by adding to the exponent: x and the result have
/// to be normal. Of a NaN anything may become.
template <typename F>
inline F with_exponent(F x, F shifted) {
  return from_bits(bits_of(x) + (bits_of(shifted) << 23));
}

/// The larger of x and 0; NaN for minus infinity, whose product with a tail of 0 that is. The zero
/// of a negative number has no sign: what is taken off it makes it -0.
template <typename F>
inline F positive_part(F x) {
  return x - negative_part(x);
}

/// positive_part(x) - a / (1 + power 2^k), k in `shifted` by kSmallShift.
template <typename F>
inline F less_tail(F x, F a, F power, F shifted) {
  const F y = a / (with_exponent(power, shifted) + kSmall);
  return fma_of(y, F(-kSmall), positive_part(x));
}

/// (2^r - 1) / r, |r| <= 1/2.
template <typename F>
inline F power_slope(F r) {
  F q = fma_of(F(0x1.417a5cp-13f), r, 0x1.5f0946p-10f);
  q = fma_of(q, r, 0x1.3b2dd2p-7f);
  q = fma_of(q, r, 0x1.c6af7ap-5f);
  q = fma_of(q, r, 0x1.ebfbdcp-3f);
  return fma_of(q, r, 0x1.62e43p-1f);
}

/// (exp(r) - 1) / r, |r| <= ln(2) / 2.
template <typename F>
inline F exp_slope(F r) {
  F q = fma_of(F(0x1.6a4154p-10f), r, 0x1.1239c6p-7f);
  q = fma_of(q, r, 0x1.5558bcp-5f);
  q = fma_of(q, r, 0x1.555492p-3f);
  q = fma_of(q, r, 0x1.fffffcp-2f);
  return fma_of(q, r, 1.0f);
}

template <typename F>
inline F sigmoid_of(F x) {
  // Above 40 it is 1, below -104.5 the nearest float is 0.
  const Reduced<F> e = reduced(at_most(at_least(-x, -40.0f), 104.5f), kSmallShift);
  const F power = from_bits((bits_of(e.shifted) << 23) + 0x3f800000u);
  return kSmall / fma_of(power, exp_slope(e.r) * e.r, power + kSmall);
}

template <typename F>
inline F silu_of(F x) {
  const F a = at_most(magnitude(x), 110.0f);  // a exp(-a) is zero there
  const Reduced<F> e = reduced(a, kSmallShift);
  return less_tail(x, a, fma_of(exp_slope(e.r), e.r, 1.0f), e.shifted);
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): w = a (linear + cubic a^2), linear = sqrt(8/pi)
// / ln(2) and cubic = 0.044715 linear, with the second parts of both, of a^2 and of the sum, as w
// may be 150. So that linear - p is exact, linear is of 21 bits.
template <typename F>
inline F gelu_tanh_of(F x) {
  constexpr float kLinear = 0x1.26aecp+1f, kLinearLow = 0x1.0de73ap-22f;
  constexpr float kCubic = 0x1.a5a7dp-4f, kCubicLow = -0x1.151aaep-29f;
  const F a = at_most(magnitude(x), 11.0f);  // a 2^-w is zero there
  const F square = a * a;
  const F square_low = fma_of(a, a, -square);
  const F p = fma_of(square, kCubic, kLinear);
  F low = fma_of(square, kCubic, kLinear - p);
  low = fma_of(square_low, kCubic, low);
  low = fma_of(square, kCubicLow, low) + kLinearLow;
  const F shifted = fma_of(a, p, kSmallShift);
  const F r = fma_of(a, low, fma_of(a, p, kSmallShift - shifted));
  return less_tail(x, a, fma_of(power_slope(r), r, 1.0f), shifted);
}

// By Phi(-a) = 2^-w(a) times what tables know, w = 23/32 a^2: that is near the exponent of Phi(-a),
// and times numbers of 19 bits 23/32 is exact. a = h + l, h of 19 bits, so that w = 23/32 h (h +
// 2l) but for l^2, which is nothing; h + 2l is a float. Few roundings are of the size of the
// result's: the table's polynomial, the sum with what 2^r is more than 1, and the last.
template <typename F>
inline F gelu_of(F x) {
  const F a = at_most(magnitude(x), 14.5f);  // a Phi(-a) is zero there
  const F h = from_bits(bits_of(a) & 0xffffffe0u);
  const F u = h * -0.71875f;
  const F s = (a - h) + a;
  const F shifted = fma_of(u, s, kShift);
  const F r = fma_of(u, s, kShift - shifted);
  const auto piece = shift_signed_right(bits_of(a + 1.0625f), 21);
  const F d = a - look_up(kGeluCentres, piece);
  F tail = look_up(kGeluTail[5], piece);
  for (int power = 4; power >= 0; --power) tail = fma_of(tail, d, look_up(kGeluTail[power], piece));
  tail = fma_of(tail, power_slope(r) * r, tail);
  return fma_of(with_exponent(tail, shifted), F(-kSmall), positive_part(x));
}

// x / (1 + exp(-weight)) by an exponential that cannot overflow: exp(-800) is zero.
inline double gated(double x, double weight) {
  const double e = exp_of(at_least(-magnitude(weight), -800.0));
  return (weight < 0.0 ? x * e : x) / (1.0 + e);
}

inline double sigmoid_of(double x) { return gated(1.0, x); }
inline double silu_of(double x) { return gated(x, x); }
inline double gelu_tanh_of(double x) {
  const double linear = 1.5957691216057307117597842397375;
  const double cubic = 0.0713548162726002487763387522799;
  return gated(x, x * fma_of(x * x, cubic, linear));
}

// ---- the ops that are functions ----
//
// The form of an elementwise op is its name in the graph, its properties and `of`, its result for
// one element of each input, over any type of value. The lists of forms, here and in forms.h, give
// an op its number, its vector kernels (unary.cc, binary.cc), its loop element by element
// (loops/loop_scalar.cc) and its machine code (jit/lower.cc). A printed kernel calls `NAME_of` by
// the name alone (cuda/print/scalar_text.cc). The reference backend has a line of its own for each
// op, by the C library: tests compare the forms with it.

/// The dtypes of the inputs: floats, floats and integers, or bools.
enum class Takes { kFloats, kNumbers, kBools };

namespace forms {

/// Base of the forms whose f32 sequence is not that of f64, which calls the C library. Such an op
/// costs more than a load and a store.
struct Function {
  static constexpr Takes kTakes = Takes::kFloats;
  static constexpr bool kIsFunction = true;
  static constexpr bool kIsExact = false;  ///< The result on a 16-bit float needs no rounding.
  static constexpr bool kWraps = false;    ///< Integers have to be given as unsigned numbers.
  static constexpr bool kLooksUp = false;  ///< Its loop needs vectors: compilers leave it scalar.
  static constexpr bool kHasNear =
      false;                              ///< It has a function `near`: of() where is_near() holds.
  static constexpr bool kHasCode = true;  ///< It consists of operations that machine code has.
};

/// Base of the forms that are the same few operations in every dtype.
struct Arithmetic : Function {
  static constexpr bool kIsFunction = false;
};

struct Exp : Function {
  static constexpr const char* name() { return "exp"; }
  template <typename F>
  static F of(F x) {
    return exp_of(x);
  }
};

struct Log : Function {
  static constexpr const char* name() { return "log"; }
  template <typename F>
  static F of(F x) {
    return log_of(x);
  }
};

struct Tanh : Function {
  static constexpr const char* name() { return "tanh"; }
  template <typename F>
  static F of(F x) {
    return tanh_of(x);
  }
};

struct Erf : Function {
  static constexpr const char* name() { return "erf"; }
  template <typename F>
  static F of(F x) {
    return erf_of(x);
  }
};

struct Sigmoid : Function {
  static constexpr const char* name() { return "sigmoid"; }
  template <typename F>
  static F of(F x) {
    return sigmoid_of(x);
  }
};

struct Silu : Function {
  static constexpr const char* name() { return "silu"; }
  template <typename F>
  static F of(F x) {
    return silu_of(x);
  }
};

struct Gelu : Function {
  static constexpr bool kLooksUp = true;
  static constexpr const char* name() { return "gelu"; }
  template <typename F>
  static F of(F x) {
    return gelu_of(x);
  }
};

struct GeluTanh : Function {
  static constexpr const char* name() { return "gelu_tanh"; }
  template <typename F>
  static F of(F x) {
    return gelu_tanh_of(x);
  }
};

struct Sin : Function {
  static constexpr bool kHasNear = true;
  static constexpr bool kHasCode = false;
  static constexpr const char* name() { return "sin"; }
  template <typename F>
  static F of(F x) {
    return sin_of(x);
  }
  static double near(double x) { return sine_near(x, 0); }
};

struct Cos : Sin {
  static constexpr const char* name() { return "cos"; }
  template <typename F>
  static F of(F x) {
    return cos_of(x);
  }
  static double near(double x) { return sine_near(x, 1); }
};

}  // namespace forms

/// A list of forms; the number of an op is the place of its form.
template <class... Form>
struct FormList {
  static constexpr int kCount = sizeof...(Form);

  /// Calls visit(number, form) for each form.
  template <typename Visit>
  static constexpr void for_each(Visit visit) {
    int number = 0;
    (visit(number++, Form{}), ...);
  }
};

using FunctionForms = FormList<forms::Exp,
                               forms::Log,
                               forms::Tanh,
                               forms::Erf,
                               forms::Sigmoid,
                               forms::Silu,
                               forms::Gelu,
                               forms::GeluTanh,
                               forms::Sin,
                               forms::Cos>;

}  // namespace
}  // namespace ridge::cpu
