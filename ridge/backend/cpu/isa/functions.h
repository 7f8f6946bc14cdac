// exp, log, tanh, erf and the activations built of them, for f32 without branches or tables, so
// that loops over them are vectorised, and for f64 by libm. Each f32 function is a fixed sequence
// of correctly rounded operations: the same bits on every machine. The sequences are templates over
// the value: a float here, a recorded operation in the JIT compiler (jit/expression.h), which so
// makes the same bits.
//
// Largest error against the correctly rounded value over all 2^32 floats, in units in the last
// place (tests/backend/math_test.cc takes a sample): exp 1, log 1, tanh 2, erf 2, sigmoid 2, silu
// 3, gelu 6; gelu by tanh about twice the exponent that it takes, where x is negative. Coefficients
// are minimax fits of our own.
//
// Internal linkage, as kernel files share no code.
#pragma once

#include <cstdint>

namespace ridge::cpu {
namespace {

// What the functions below are made of, besides arithmetic and comparisons. Whole numbers are
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
/// As a signed number, as all machines shift it and convert it.
inline uint32_t shift_signed_right(uint32_t x, int by) {
  return static_cast<uint32_t>(static_cast<int32_t>(x) >> by);
}
inline float float_of_signed(uint32_t x) { return static_cast<float>(static_cast<int32_t>(x)); }

// ln 2 in two parts; the product of the first with an exponent is exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;

// An exponential as two factors, the first of them normal: something multiplied by the first and
// then the second is rounded well even where the exponential itself is subnormal.
template <typename T>
struct Factors {
  T first;
  T second;
};

// exp(x) = 2^k exp(r), |r| <= ln(2)/2, for x <= 89. Below -120 it is zero, whatever
// it is multiplied by.
template <typename F>
inline Factors<F> exp_factors(F x) {
  const auto is_zero = x < -120.0f;
  x = select(is_zero, F(-120.0f), x);
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: the sum's last bits are a whole number
  const F shifted = fma_of(x, 0x1.715476p+0f, kShift);
  const F k = shifted - kShift;
  F r = fma_of(k, -kLn2High, x);
  r = fma_of(k, -kLn2Low, r);
  F p = fma_of(F(0x1.6ac682p-10f), r, 0x1.123ddep-7f);
  p = fma_of(p, r, 0x1.555858p-5f);
  p = fma_of(p, r, 0x1.55548cp-3f);
  p = fma_of(p, r, 0x1.fffffcp-2f);
  p = fma_of(r * r, p, r) + 1.0f;
  const auto exponent = bits_of(shifted) - bits_of(kShift);
  const auto half = shift_signed_right(exponent, 1);
  const F second = from_bits((exponent - half + 127u) << 23);
  return {p * from_bits((half + 127u) << 23), select(is_zero, F(0.0f), second)};
}

template <typename F>
inline F exp_of(F x) {
  const Factors<F> e = exp_factors(select(x > 89.0f, F(89.0f), x));
  return e.first * e.second;
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
  a = select(a > 9.1f, F(9.1f), a);
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
  a = select(a > 3.95f, F(3.95f), a);
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

// x Phi(x) by Phi(-a) = exp(-a^2/2) R(a), which does not cancel for negative x.
template <typename F>
inline F gelu_of(F x) {
  F a = magnitude(x);
  a = select(a > 16.0f, F(16.0f), a);  // exp(-128) is zero
  const F square = a * a;
  const F rest = fma_of(a, a, -square);
  Factors<F> e = exp_factors(-0.5f * square);
  e.first = fma_of(e.first * -0.5f, rest, e.first);
  F p = fma_of(F(0x1.0d5358p-8f), a, 0x1.4c7f0ap-5f);
  p = fma_of(p, a, 0x1.76fd8cp-3f);
  p = fma_of(p, a, 0x1.c0a0dcp-2f);
  p = fma_of(p, a, 0.5f);
  F q = fma_of(F(0x1.518baap-7f), a, 0x1.a0bfbap-4f);
  q = fma_of(q, a, 0x1.e05feep-2f);
  q = fma_of(q, a, 0x1.33b2aep+0f);
  q = fma_of(q, a, 0x1.ac92a0p+0f);
  q = fma_of(q, a, 1.0f);
  const F r = p / q;
  return select(x < 0.0f, x * e.first * r * e.second, fma_of(-a * e.first * e.second, r, x));
}

inline double exp_of(double x) { return __builtin_exp(x); }
inline Factors<double> exp_factors(double x) { return {__builtin_exp(x), 1.0}; }
inline double log_of(double x) { return __builtin_log(x); }
inline double tanh_of(double x) { return __builtin_tanh(x); }
inline double erf_of(double x) { return __builtin_erf(x); }

inline double gelu_of(double x) { return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440); }

// The variance, of which the mean square around an estimate of the mean and what that estimate
// missed are known; rounding must not make it negative. NaN stays NaN.
inline double variance_of(double mean_square, double missed) {
  const double variance = mean_square - missed * missed;
  return variance < 0.0 ? 0.0 : variance;
}

// x sigmoid(weight) = x / (1 + exp(-weight)), by an exponential that cannot overflow.
template <typename T>
inline T gated(T x, T weight) {
  const Factors<T> e = exp_factors(-magnitude(weight));
  const T numerator = select(weight < T(0), x * e.first * e.second, x);
  return numerator / (T(1) + e.first * e.second);
}

template <typename T>
inline T sigmoid_of(T x) {
  return gated(T(1), x);
}

template <typename T>
inline T silu_of(T x) {
  return gated(x, x);
}

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <typename T>
inline T gelu_tanh_of(T x) {
  const T linear = T(1.5957691216057307117597842397375);
  const T cubic = T(0.0713548162726002487763387522799);
  return gated(x, x * fma_of(x * x, cubic, linear));
}

}  // namespace
}  // namespace ridge::cpu
