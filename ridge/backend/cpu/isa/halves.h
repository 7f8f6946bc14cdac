// 16-bit floats to f32 and back, by blocks. Internal linkage, as kernel files share no code.
#pragma once

#include <immintrin.h>

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {
namespace {

// Elements that a kernel widens at a time: two such blocks of f32 lie well within the L1 cache.
constexpr int64_t kBlock = 1024;

inline float widen(F16Bits x) { return _cvtsh_ss(static_cast<uint16_t>(x)); }

inline float widen(BF16Bits x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

inline F16Bits narrow_f16(float x) {
  return static_cast<F16Bits>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}

// To nearest even; a NaN must not round to infinity.
inline BF16Bits narrow_bf16(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t near = bits + 0x7fffu + (bits >> 16 & 1u);
  return static_cast<BF16Bits>((x == x ? near : bits | 0x400000u) >> 16);
}

template <typename T>
T narrow(float x) {
  if constexpr (std::is_same_v<T, F16Bits>)
    return narrow_f16(x);
  else
    return narrow_bf16(x);
}

inline __m256 widen8(const F16Bits* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

inline void narrow8(__m256 x, F16Bits* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

// f32 and f64 are their own wide form, so that one template serves all float types.
template <typename T>
Computed<T> wide(T x) {
  if constexpr (kIsHalf<T>)
    return widen(x);
  else
    return x;
}

template <typename T>
T rounded(Computed<T> x) {
  if constexpr (kIsHalf<T>)
    return narrow<T>(x);
  else
    return x;
}

inline void widen(const F16Bits* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, widen8(from + i));
  const int rest = static_cast<int>(n - i);
  for (int j = 0; j < rest; ++j) to[i + j] = widen(from[i + j]);
}

inline void narrow(const float* from, F16Bits* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) narrow8(_mm256_loadu_ps(from + i), to + i);
  const int rest = static_cast<int>(n - i);
  for (int j = 0; j < rest; ++j) to[i + j] = narrow_f16(from[i + j]);
}

inline void widen(const BF16Bits* from, float* to, int64_t n) {
  RIDGE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
}

inline void narrow(const float* from, BF16Bits* to, int64_t n) {
  RIDGE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) to[i] = narrow_bf16(from[i]);
}

}  // namespace
}  // namespace ridge::cpu
