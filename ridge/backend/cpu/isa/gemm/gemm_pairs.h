// Pairs of bf16 out of the memory of operands, 16 pairs to a register, for the files that pack
// them. Everything here has internal linkage, as those files share no code.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ridge/backend/cpu/isa/half_bits.h"

namespace ridge::cpu {
namespace {

// g++ 12 warns of an uninitialised operand inside the forms without a mask (GCC bug 105593).
constexpr __mmask16 kAll = 0xffff;

constexpr int kLanes = 16;

int least(int a, int64_t b) { return b < a ? static_cast<int>(b) : a; }
__mmask16 first16(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
__mmask32 first32(int n) { return static_cast<__mmask32>((uint64_t{1} << n) - 1u); }

// Sources. along(): the first n of 32 steps of one lane, as pairs. across(): of two steps, the
// lanes of the mask, as pairs; the second step may be missing.

// f32, rounded to nearest even by the instruction for it, which takes subnormal numbers for zero.
// `kRoundsUp`: those that are nearest to the least normal number become that, as a cast has it.
template <bool kRoundsUp>
struct F32 {
  using In = float;
  static __m512 raise(__m512 x) {
    if constexpr (!kRoundsUp) return x;
    const __m512i bits = __builtin_bit_cast(__m512i, x);
    const __m512i size = _mm512_maskz_and_epi32(kAll, bits, _mm512_set1_epi32(0x7fffffff));
    const __m512i over = _mm512_maskz_sub_epi32(kAll, size, _mm512_set1_epi32(0x7f8000));
    const __mmask16 some = _mm512_cmplt_epu32_mask(over, _mm512_set1_epi32(0x8000));
    const __m512i sign = _mm512_maskz_sub_epi32(kAll, bits, size);
    const __m512i least = _mm512_maskz_or_epi32(kAll, sign, _mm512_set1_epi32(0x800000));
    return __builtin_bit_cast(__m512, _mm512_mask_mov_epi32(bits, some, least));
  }
  static __m512i round(__m512 low, __m512 high) {
    return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(raise(high), raise(low)));
  }
  static __m512i along(const In* p) { return round(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)); }
  static __m512i along(const In* p, int n) {
    return round(_mm512_maskz_loadu_ps(first16(n < 16 ? n : 16), p),
                 _mm512_maskz_loadu_ps(first16(n < 16 ? 0 : n - 16), p + 16));
  }
  static __m512i across(const In* p, const In* next, __mmask16 lanes) {
    alignas(64) static constexpr int16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512 odd = next == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, next);
    return _mm512_maskz_permutexvar_epi16(
        0xffffffff, _mm512_load_si512(kOrder), round(_mm512_maskz_loadu_ps(lanes, p), odd));
  }
};

struct BF16 {
  using In = BF16Bits;
  static __m512i along(const In* p) { return _mm512_loadu_si512(p); }
  static __m512i along(const In* p, int n) { return _mm512_maskz_loadu_epi16(first32(n), p); }
  static __m512i across(const In* p, const In* next, __mmask16 lanes) {
    const __m512i even = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(lanes, p));
    if (next == nullptr) return even;
    const __m512i odd = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(lanes, next));
    return _mm512_or_si512(even, _mm512_maskz_slli_epi32(kAll, odd, 16));
  }
};

// Transposes quads of columns: for each group g of four rows, lane L of the result x[4 * g + c] is
// column 4 * L + c of rows 4 * g to 4 * g + 3.
void transpose_quads(__m512i (&x)[16]) {
  __m512i pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_maskz_unpacklo_epi32(kAll, x[i], x[i + 1]);
    pairs[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      x[i + 2 * j] = _mm512_maskz_unpacklo_epi64(0xff, pairs[i + j], pairs[i + 2 + j]);
      x[i + 2 * j + 1] = _mm512_maskz_unpackhi_epi64(0xff, pairs[i + j], pairs[i + 2 + j]);
    }
}

void transpose(__m512i (&x)[16]) {
  transpose_quads(x);
  __m512i y[16];
  for (int c = 0; c < 4; ++c) {
    const __m512i even[2] = {_mm512_maskz_shuffle_i32x4(kAll, x[c], x[4 + c], 0x88),
                             _mm512_maskz_shuffle_i32x4(kAll, x[8 + c], x[12 + c], 0x88)};
    const __m512i odd[2] = {_mm512_maskz_shuffle_i32x4(kAll, x[c], x[4 + c], 0xdd),
                            _mm512_maskz_shuffle_i32x4(kAll, x[8 + c], x[12 + c], 0xdd)};
    y[c] = _mm512_maskz_shuffle_i32x4(kAll, even[0], even[1], 0x88);
    y[8 + c] = _mm512_maskz_shuffle_i32x4(kAll, even[0], even[1], 0xdd);
    y[4 + c] = _mm512_maskz_shuffle_i32x4(kAll, odd[0], odd[1], 0x88);
    y[12 + c] = _mm512_maskz_shuffle_i32x4(kAll, odd[0], odd[1], 0xdd);
  }
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

}  // namespace
}  // namespace ridge::cpu
