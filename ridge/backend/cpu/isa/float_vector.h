// A vector of f32 as wide as the instruction set's, in place of a float in those of functions.h
// that the compiler does not vectorise. Internal linkage, as kernel files share no code.
#pragma once

#include <immintrin.h>

#include "ridge/backend/cpu/isa/functions.h"

namespace ridge::cpu {
namespace {

#ifdef __AVX512F__

// g++ 12 warns of an uninitialised operand inside the forms without a mask (GCC bug 105593).
struct FloatVector {
  static constexpr int64_t kWidth = 16;
  static constexpr __mmask16 kEach = 0xffff;
  struct Bits {
    __m512i v;
    friend Bits operator+(Bits a, Bits b) { return {_mm512_add_epi32(a.v, b.v)}; }
    friend Bits operator&(Bits a, uint32_t b) {
      return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(b)))};
    }
    friend Bits operator<<(Bits a, unsigned by) {
      return {_mm512_maskz_slli_epi32(kEach, a.v, by)};
    }
  };

  FloatVector(float x) : v(_mm512_set1_ps(x)) {}
  FloatVector(__m512 x) : v(x) {}
  static FloatVector load(const float* p) { return _mm512_loadu_ps(p); }
  void store(float* p) const { _mm512_storeu_ps(p, v); }

  friend FloatVector operator+(FloatVector a, FloatVector b) { return _mm512_add_ps(a.v, b.v); }
  friend FloatVector operator-(FloatVector a, FloatVector b) { return _mm512_sub_ps(a.v, b.v); }
  friend FloatVector operator*(FloatVector a, FloatVector b) { return _mm512_mul_ps(a.v, b.v); }
  friend FloatVector fma_of(FloatVector a, FloatVector b, FloatVector c) {
    return _mm512_fmadd_ps(a.v, b.v, c.v);
  }
  // The machine's maximum and minimum take the second where the operands are equal or NaN.
  friend FloatVector at_least(FloatVector x, float limit) {
    return _mm512_maskz_max_ps(kEach, _mm512_set1_ps(limit), x.v);
  }
  friend FloatVector at_most(FloatVector x, float limit) {
    return _mm512_maskz_min_ps(kEach, _mm512_set1_ps(limit), x.v);
  }
  friend FloatVector negative_part(FloatVector x) {
    return _mm512_maskz_min_ps(kEach, x.v, _mm512_setzero_ps());
  }
  friend Bits bits_of(FloatVector x) { return {_mm512_castps_si512(x.v)}; }
  friend FloatVector from_bits(Bits x) { return _mm512_castsi512_ps(x.v); }
  friend Bits shift_signed_right(Bits x, unsigned by) {
    return {_mm512_maskz_srai_epi32(kEach, x.v, by)};
  }
  friend FloatVector look_up(const Table16& table, Bits index) {
    return _mm512_maskz_permutexvar_ps(kEach, index.v, _mm512_load_ps(table.of));
  }

  __m512 v;
};

#else

struct FloatVector {
  static constexpr int64_t kWidth = 8;
  struct Bits {
    __m256i v;
    friend Bits operator+(Bits a, Bits b) { return {_mm256_add_epi32(a.v, b.v)}; }
    friend Bits operator&(Bits a, uint32_t b) {
      return {_mm256_and_si256(a.v, _mm256_set1_epi32(static_cast<int>(b)))};
    }
    friend Bits operator<<(Bits a, int by) { return {_mm256_slli_epi32(a.v, by)}; }
  };

  FloatVector(float x) : v(_mm256_set1_ps(x)) {}
  FloatVector(__m256 x) : v(x) {}
  static FloatVector load(const float* p) { return _mm256_loadu_ps(p); }
  void store(float* p) const { _mm256_storeu_ps(p, v); }

  friend FloatVector operator+(FloatVector a, FloatVector b) { return _mm256_add_ps(a.v, b.v); }
  friend FloatVector operator-(FloatVector a, FloatVector b) { return _mm256_sub_ps(a.v, b.v); }
  friend FloatVector operator*(FloatVector a, FloatVector b) { return _mm256_mul_ps(a.v, b.v); }
  friend FloatVector fma_of(FloatVector a, FloatVector b, FloatVector c) {
    return _mm256_fmadd_ps(a.v, b.v, c.v);
  }
  // The machine's maximum and minimum take the second where the operands are equal or NaN.
  friend FloatVector at_least(FloatVector x, float limit) {
    return _mm256_max_ps(_mm256_set1_ps(limit), x.v);
  }
  friend FloatVector at_most(FloatVector x, float limit) {
    return _mm256_min_ps(_mm256_set1_ps(limit), x.v);
  }
  friend FloatVector negative_part(FloatVector x) {
    return _mm256_min_ps(x.v, _mm256_setzero_ps());
  }
  friend Bits bits_of(FloatVector x) { return {_mm256_castps_si256(x.v)}; }
  friend FloatVector from_bits(Bits x) { return _mm256_castsi256_ps(x.v); }
  friend Bits shift_signed_right(Bits x, int by) { return {_mm256_srai_epi32(x.v, by)}; }
  friend FloatVector look_up(const Table16& table, Bits index) {
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(table.of), index.v);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_load_ps(table.of + 8), index.v);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps((index << 28).v));
  }

  __m256 v;
};

#endif

inline FloatVector magnitude(FloatVector x) { return from_bits(bits_of(x) & 0x7fffffffu); }

}  // namespace
}  // namespace ridge::cpu
