// Functions of f32 by the device's own approximations: what a loop calls that is bound by its
// arithmetic and need not have the CPU's bits.
//
// NVIDIA's "Parallel Thread Execution ISA" says how far off the instructions are at most:
// ex2.approx 2 units in the last place, rcp.approx 1. tanh.approx and lg2.approx are off by more
// than a float should be (2^-11; near 1 the logarithm by 2^-22 of 1): tanh is made of an
// exponential, and the logarithm, of which a row has one, stays the CPU's. With `ftz` a number
// below 2^-126 becomes zero.
//
// Largest error in units of 2^-23 of the result, where both instructions err as much as they may:
// exp 3 (5 where x - max(x) makes it less than 1e-10), sigmoid and silu 5, tanh 4; gelu by tanh 4
// for positive numbers, for negative ones, and gelu for all, 8 of the larger of |result| and |x| /
// 8. What is less than 2^-118 may be zero. tests/backend/cuda_kernels/printed_approx_test.cc holds
// them to that, by stand-ins that err so.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda::approx {

#ifdef __CUDA_ARCH__

inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The larger and the smaller one; NaN where either is.
inline float at_least(float x, float limit) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
  return y;
}
inline float at_most(float x, float limit) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
  return y;
}

#else

inline float exp2_of(float x) { return simt::approx_exp2(x); }
inline float reciprocal(float x) { return simt::approx_reciprocal(x); }
inline float at_least(float x, float limit) { return larger(x, limit); }
inline float at_most(float x, float limit) { return smaller(x, limit); }

#endif

inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

inline constexpr float kLog2E = 0x1.715476p+0f;

/// ln 2 times the amount by which t, the rounded x log2(e), is too small: exp(x) = 2^t (1 + c). ln
/// 2 is split into two parts, as t may be 128.
inline float missed(float x, float t) {
  const float c = multiply_add(t, -0x1.62e43p-1f, x);
  return multiply_add(t, 0x1.05c61p-29f, c);
}

/// Below -87.3 it is zero. The upper limit is the first float whose power is infinite: `missed` is
/// positive there, so that infinity is kept.
inline float exp_of(float x) {
  const float a = at_most(at_least(x, -105.0f), 0x1.62e43p+6f);
  const float t = a * kLog2E;
  const float power = exp2_of(t);
  return multiply_add(power, missed(a, t), power);
}

/// The same for x <= 0. Of ln 2 one part serves: results above 1e-10 have all of their bits.
inline float exp_below_zero(float x) {
  const float a = at_least(x, -105.0f);
  const float t = a * kLog2E;
  const float power = exp2_of(t);
  return multiply_add(power, multiply_add(t, -0x1.62e43p-1f, a), power);
}

/// exp(x - y) for x <= y, of which only the size compared with 1 matters: a term of a sum that is
/// at least 1.
inline float term_of(float x, float y) { return exp2_of((x - y) * kLog2E); }

/// The larger of two by one instruction; of zeros of either sign it may be any.
struct Larger {
  template <typename T>
  static T neutral() {
    return -__builtin_inff();
  }
  static float lanes(float a, float b) { return at_least(a, b); }
  static float fold(float a, float b) { return at_least(a, b); }
};

/// The largest of a row and the sum of exp(x - largest), found together: whenever a larger number
/// comes, the sum so far is scaled. What has no number yet has the lowest one there is and a sum of
/// zero, which no number leaves: infinities need no care on the way.
struct Exponentials {
  float max = -0x1.fffffep+127f, sum = 0.0f;

  void add(const float (&x)[4]) {
    const float top = at_least(at_least(x[0], x[1]), at_least(at_least(x[2], x[3]), max));
    if (top != max) {
      sum *= term_of(max, top);
      max = top;
    }
    sum += (term_of(x[0], max) + term_of(x[1], max)) + (term_of(x[2], max) + term_of(x[3], max));
  }

  /// Those of the sixteen threads of a group, for all of them. A warp calls this together.
  void combine() {
    constexpr unsigned kAll = 0xffffffffu;
    float top = max;
#pragma unroll
    for (int by = kGroup / 2; by > 0; by /= 2)
      top = at_least(top, __shfl_down_sync(kAll, top, by, kGroup));
    top = __shfl_sync(kAll, top, 0, kGroup);
    float all = sum * term_of(max, top);
#pragma unroll
    for (int by = kGroup / 2; by > 0; by /= 2) all += __shfl_down_sync(kAll, all, by, kGroup);
    max = top;
    sum = __shfl_sync(kAll, all, 0, kGroup);
  }

  /// Combines the results of up to 64 groups, one for each piece, for the whole block, which calls
  /// this together. `maxima` and `sums` have one element for each piece, as over_pieces() asks for.
  void combine(float* maxima, float* sums, int pieces) {
    combine();
    const int lane = static_cast<int>(threadIdx.x) % kGroup;
    const int piece = static_cast<int>(threadIdx.x) / kGroup;
    if (lane == 0 && piece < pieces) maxima[piece] = max, sums[piece] = sum;
    __syncthreads();
    *this = Exponentials();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int from = lane * 4 + k;
      if (from >= pieces) continue;
      const float top = at_least(max, maxima[from]);
      sum = sum * term_of(max, top) + sums[from] * term_of(maxima[from], top);
      max = top;
    }
    combine();
  }

  /// For a row of which all are -infinity, the largest is -infinity and the total NaN.
  float largest() const { return sum == 0.0f ? -__builtin_inff() : max; }
  float total() const { return sum == 0.0f ? __builtin_nanf("") : sum; }
};

inline float sigmoid_of(float x) { return reciprocal(1.0f + exp_of(-x)); }

inline float silu_of(float x) {
  const float a = at_least(x, -105.0f);
  return a * reciprocal(1.0f + exp_of(-a));
}

// 1 - 2 / (exp(2a) + 1), a = |x|, which cancels where a is small: there x + x^3 P(x^2).
inline float tanh_of(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  const float q = reciprocal(exp2_of(a * (2 * kLog2E)) + 1.0f);
  float p = multiply_add(-0x1.825836p-8f, z, 0x1.54b898p-6f);
  p = multiply_add(p, z, -0x1.b898dcp-5f);
  p = multiply_add(p, z, 0x1.1109aep-3f);
  p = multiply_add(p, z, -0x1.55553ep-2f);
  const float near = multiply_add(x * z, p, x);
  return a < 0.6f ? near : __builtin_copysignf(multiply_add(q, -2.0f, 1.0f), x);
}

// x / (1 + 2^-w), w = x (linear + cubic x^2), linear = sqrt(8 / pi) log2(e) and cubic = 0.044715
// linear. Below -11 it is zero.
inline float gelu_tanh_of(float x) {
  const float a = at_least(x, -11.0f);
  const float w = a * multiply_add(a * a, -0x1.a5a7dp-4f, -0x1.26aec2p+1f);
  return a * reciprocal(1.0f + exp2_of(w));
}

// max(x, 0) - a Phi(-a), a = |x|, which does not cancel for negative x. Phi(-a) = exp(-a^2 / 2) t
// P(t), t = 1 / (1 + 0.35 a): P is a fit of our own, of a relative error of 2^-24. Above 14.5 the
// product is zero.
inline float gelu_of(float x) {
  const float a = at_most(__builtin_fabsf(x), 14.5f);
  const float t = reciprocal(multiply_add(a, 0.35f, 1.0f));
  float p = multiply_add(-0x1.ddba74p-6f, t, 0x1.26fa88p-3f);
  p = multiply_add(p, t, -0x1.05fb84p-2f);
  p = multiply_add(p, t, 0x1.464b5p-3f);
  p = multiply_add(p, t, -0x1.7c59dap-6f);
  p = multiply_add(p, t, 0x1.b058dcp-4f);
  p = multiply_add(p, t, 0x1.eac97ap-4f);
  p = multiply_add(p, t, 0x1.1e70c8p-3f);
  p = multiply_add(p, t, 0x1.1df1c6p-3f);
  const float tail = exp2_of(a * a * (-0.5f * kLog2E)) * (t * p);
  // -0 keeps the sign of a result that is zero.
  return multiply_add(-a, tail, at_least(x, -0.0f));
}

}  // namespace ridge::cuda::approx
