// Registers by element type: of 32 bytes, and of the widest vectors of the instruction set that a
// file is compiled for; max(a, b) is b where either is NaN. Internal linkage, as kernel files share
// no code.
#pragma once

#include <immintrin.h>

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {
namespace {

// Registers of 32 bytes.
template <typename T>
struct Half;

template <>
struct Half<float> {
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load(const F16Bits* p) { return _mm256_cvtph_ps(halves(p)); }
  static Reg load(const BF16Bits* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(p)), 16));
  }
  static void store(float* p, Reg x) { _mm256_storeu_ps(p, x); }
  static Reg set(float x) { return _mm256_set1_ps(x); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }

 private:
  static __m128i halves(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
};

template <>
struct Half<double> {
  using Reg = __m256d;
  static constexpr int kLanes = 4;
  static Reg zero() { return _mm256_setzero_pd(); }
  static Reg load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Reg x) { _mm256_storeu_pd(p, x); }
  static Reg set(double x) { return _mm256_set1_pd(x); }
  static Reg add(Reg a, Reg b) { return _mm256_add_pd(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_pd(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_pd(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
};

#ifdef __AVX512F__

template <typename T>
struct Vector;

template <>
struct Vector<float> {
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load(const F16Bits* p) { return _mm512_cvtph_ps(halves(p)); }
  static Reg load(const BF16Bits* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(p)), 16));
  }
  static void store(float* p, Reg x) { _mm512_storeu_ps(p, x); }
  static Reg set(float x) { return _mm512_set1_ps(x); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }

 private:
  static __m256i halves(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
};

template <>
struct Vector<double> {
  using Reg = __m512d;
  static constexpr int kLanes = 8;
  static Reg zero() { return _mm512_setzero_pd(); }
  static Reg load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Reg x) { _mm512_storeu_pd(p, x); }
  static Reg set(double x) { return _mm512_set1_pd(x); }
  static Reg add(Reg a, Reg b) { return _mm512_add_pd(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_pd(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_pd(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
};

#else

template <typename T>
using Vector = Half<T>;

#endif

}  // namespace
}  // namespace ridge::cpu
