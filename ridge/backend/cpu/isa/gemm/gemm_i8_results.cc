// The results of products of bytes: loops that the compiler makes vectors of, and by AVX-512 what
// most products of bytes need.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu::RIDGE_ISA {
namespace {

// Both wrap around, as sums do.
int32_t minus(int32_t x, int32_t y) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) - static_cast<uint32_t>(y));
}
int32_t times(int32_t x, int32_t y) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) * static_cast<uint32_t>(y));
}

void subtract(int32_t* __restrict sums, int32_t factor, const int32_t* by, int64_t count) {
  for (int64_t j = 0; j < count; ++j) sums[j] = minus(sums[j], times(factor, by[j]));
}

// A row of results. x * 1 and x + -0 are x, whatever x is.
struct Row {
  const int32_t* __restrict sums;
  const int32_t* __restrict terms;
  const float* __restrict scales;
  float scale;
  const float* __restrict bias;
  int32_t zero, low, high;

  int32_t sum(int64_t j) const { return minus(sums[j], terms[j]); }
  float scaled(int64_t j) const { return static_cast<float>(sum(j)) * scales[j] * scale + bias[j]; }
};

inline void write_one(const Row& row, int64_t j, float& to) { to = row.scaled(j); }
inline void write_one(const Row& row, int64_t j, int32_t& to) { to = row.sum(j); }
// The limits are integers, so they may come before the rounding.
template <typename T>
void write_one(const Row& row, int64_t j, T& to) {
  const float least = static_cast<float>(row.low - row.zero);
  const float most = static_cast<float>(row.high - row.zero);
  const float x = row.scaled(j);
  float y = x > least ? x : least;
  y = y < most ? y : most;
  const int32_t rounded = static_cast<int32_t>(__builtin_rintf(y)) + row.zero;
  to = static_cast<T>(x == x ? rounded : 0);  // 0 for NaN
}

template <typename T>
void write_row(const Row& x, T* __restrict to, int64_t count) {
  const Row row = x;
  for (int64_t j = 0; j < count; ++j) write_one(row, j, to[j]);
}

template <typename T>
void write(const GemmI8Results& r, int32_t* sums, int64_t first, int64_t last) {
  constexpr int64_t kStrip = kI8Panels * kI8Lanes;
  constexpr int64_t kAhead = 8;  // rows whose lines are fetched
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t i = first; i < last; ++i, sums += r.sums_row) {
    if (r.row_zeros != nullptr) subtract(sums, r.row_zeros[i], r.column_sums, r.columns);
    if (r.row_terms != nullptr) subtract(sums, r.row_terms[i], r.column_zeros, r.columns);
    const float scale = r.row_scales == nullptr ? 1.0f : r.row_scales[i];
    const Row row{sums, r.column_terms, r.column_scales, scale, r.bias, r.zero, r.low, r.high};
    T* const to = static_cast<T*>(r.to) + i * r.to_row;
    for (int64_t j = 0; i + kAhead < r.rows && j < r.columns; j += kLine)
      __builtin_prefetch(to + kAhead * r.to_row + j, 1);
    // A number of columns that the compiler knows makes no loop of it.
    r.columns == kStrip ? write_row(row, to, kStrip) : write_row(row, to, r.columns);
  }
}

#ifdef __AVX512BW__

// ---- plain numbers as bytes ----

constexpr int64_t kVector = 16;
constexpr int kVectors = static_cast<int>(kI8Panels * kI8Lanes / kVector);

// The numbers of a strip of columns.
struct Strip {
  __m512i terms[kVectors];
  __m512 scales[kVectors], bias[kVectors];
  __mmask64 columns;

  Strip(const GemmI8Results& r, int64_t column)
      : columns(r.columns - column >= 64 ? ~0ULL : (1ULL << (r.columns - column)) - 1) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * kVector;
      terms[v] = _mm512_loadu_si512(r.column_terms + at);
      scales[v] = _mm512_loadu_ps(r.column_scales + at);
      bias[v] = _mm512_loadu_ps(r.bias + at);
    }
  }
  __m512i rounded(const int32_t* sums, int v) const {
    const __m512i sum = _mm512_sub_epi32(_mm512_loadu_si512(sums + v * kVector), terms[v]);
    const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales[v]);
    return _mm512_cvtps_epi32(_mm512_add_ps(x, bias[v]));
  }
};

// Packing to 16 bits and then to bytes saturates, so that only limits within those of the type are
// left. It puts four numbers of each vector side by side.
template <bool kSigned>
void write_plain(const GemmI8Results& r, int32_t* sums, int64_t first, int64_t last) {
  constexpr int64_t kAhead = 8;
  const __m512i zero = _mm512_set1_epi16(static_cast<int16_t>(r.zero));
  const __m512i low = _mm512_set1_epi8(static_cast<char>(r.low));
  const __m512i high = _mm512_set1_epi8(static_cast<char>(r.high));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int64_t column = 0; column < r.columns; column += kI8Panels * kI8Lanes) {
    const Strip strip(r, column);
    const int32_t* from = sums + column;
    uint8_t* to = static_cast<uint8_t*>(r.to) + first * r.to_row + column;
    for (int64_t i = first; i < last; ++i, from += r.sums_row, to += r.to_row) {
      if (i + kAhead < r.rows) __builtin_prefetch(to + kAhead * r.to_row, 1);
      const __m512i front = _mm512_packs_epi32(strip.rounded(from, 0), strip.rounded(from, 1));
      const __m512i back = _mm512_packs_epi32(strip.rounded(from, 2), strip.rounded(from, 3));
      const __m512i x = _mm512_adds_epi16(front, zero), y = _mm512_adds_epi16(back, zero);
      __m512i bytes = kSigned ? _mm512_packs_epi16(x, y) : _mm512_packus_epi16(x, y);
      bytes = _mm512_permutexvar_epi32(order, bytes);
      bytes = kSigned ? _mm512_max_epi8(bytes, low) : _mm512_max_epu8(bytes, low);
      bytes = kSigned ? _mm512_min_epi8(bytes, high) : _mm512_min_epu8(bytes, high);
      _mm512_mask_storeu_epi8(to, strip.columns, bytes);
    }
  }
}

constexpr GiveI8Results kPlainToI8 = write_plain<true>, kPlainToU8 = write_plain<false>;

#else
constexpr GiveI8Results kPlainToI8 = nullptr, kPlainToU8 = nullptr;
#endif

}  // namespace

const GemmI8ResultKernels gemm_i8_result_kernels = {
    write<int32_t>, write<float>, write<int8_t>, write<uint8_t>, kPlainToI8, kPlainToU8};

}  // namespace ridge::cpu::RIDGE_ISA
