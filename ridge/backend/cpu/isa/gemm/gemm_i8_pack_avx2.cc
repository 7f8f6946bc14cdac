// Packs bytes for the products of gemm_i8_kernels.h.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu {
namespace {

__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
__m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Lanes whose steps lie side by side, as (16 lanes, 64 steps).
void fetch_along(const GemmI8Lanes& x, int64_t p, int64_t steps, uint8_t* to) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(x.flip));
  const uint8_t* from = x.from + p;
  for (int i = 0; i < kI8Lanes; ++i, from += x.lane_stride, to += kI8Steps) {
    if (i < x.lanes && steps == kI8Steps) {
      store(to, _mm256_xor_si256(load(from), flip));
      store(to + 32, _mm256_xor_si256(load(from + 32), flip));
      continue;
    }
    store(to, _mm256_setzero_si256());
    store(to + 32, _mm256_setzero_si256());
    for (int64_t s = 0; i < x.lanes && s < steps; ++s)
      to[s] = static_cast<uint8_t>(from[s] ^ x.flip);
  }
}

// Lanes that lie side by side, as (16 quads of steps, 16 lanes, 4 steps).
void fetch_across(const GemmI8Lanes& x, int64_t p, int64_t steps, uint8_t* to) {
  alignas(16) uint8_t some[4][16] = {}, flips[16] = {};
  for (int i = 0; i < x.lanes; ++i) flips[i] = x.flip;
  const __m128i flip = load16(flips);
  const uint8_t* from = x.from + p * x.depth_stride;
  for (int64_t q = 0; q < kI8Steps; q += 4, to += 64) {
    __m128i step[4];
    for (int64_t s = 0; s < 4; ++s, from += x.depth_stride) {
      step[s] = _mm_setzero_si128();
      if (q + s >= steps) continue;
      const uint8_t* row = from;
      if (x.lanes < kI8Lanes) {
        for (int i = 0; i < x.lanes; ++i) some[s][i] = from[i];
        row = some[s];
      }
      step[s] = _mm_xor_si128(load16(row), flip);
    }
    const __m128i low01 = _mm_unpacklo_epi8(step[0], step[1]);
    const __m128i high01 = _mm_unpackhi_epi8(step[0], step[1]);
    const __m128i low23 = _mm_unpacklo_epi8(step[2], step[3]);
    const __m128i high23 = _mm_unpackhi_epi8(step[2], step[3]);
    __m128i* const quads = reinterpret_cast<__m128i*>(to);
    _mm_store_si128(quads, _mm_unpacklo_epi16(low01, low23));
    _mm_store_si128(quads + 1, _mm_unpackhi_epi16(low01, low23));
    _mm_store_si128(quads + 2, _mm_unpacklo_epi16(high01, high23));
    _mm_store_si128(quads + 3, _mm_unpackhi_epi16(high01, high23));
  }
}

// Transposes 8 by 8 quads of rows of 64 bytes.
void transpose_eight(const uint8_t* from, uint8_t* to) {
  __m256i x[8], y[8];
  for (int i = 0; i < 8; i += 2) {
    const __m256i even = load(from + i * 64), odd = load(from + i * 64 + 64);
    x[i] = _mm256_unpacklo_epi32(even, odd);
    x[i + 1] = _mm256_unpackhi_epi32(even, odd);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      y[i + 2 * j] = _mm256_unpacklo_epi64(x[i + j], x[i + 2 + j]);
      y[i + 2 * j + 1] = _mm256_unpackhi_epi64(x[i + j], x[i + 2 + j]);
    }
  for (int i = 0; i < 4; ++i) {
    store(to + i * 64, _mm256_permute2x128_si256(y[i], y[4 + i], 0x20));
    store(to + (4 + i) * 64, _mm256_permute2x128_si256(y[i], y[4 + i], 0x31));
  }
}

void transpose_tile(const uint8_t* from, uint8_t* to) {
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      transpose_eight(from + i * 8 * 64 + j * 32, to + j * 8 * 64 + i * 32);
}

void add_row_sums(const uint8_t* tile, int32_t* sums) {
  const __m256i zero = _mm256_setzero_si256();
  for (int i = 0; i < kI8Lanes; ++i, tile += kI8Steps) {
    const __m256i sum =
        _mm256_add_epi64(_mm256_sad_epu8(load(tile), zero), _mm256_sad_epu8(load(tile + 32), zero));
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    sums[i] += _mm_cvtsi128_si32(half) + _mm_extract_epi32(half, 2);
  }
}

// Sixteen pairs of bytes, at most 2^13 together, fit in 16 bits.
void add_column_sums(const uint8_t* tile, int32_t* sums) {
  const __m256i ones = _mm256_set1_epi8(1), wide_ones = _mm256_set1_epi16(1);
  for (int half = 0; half < 2; ++half) {
    __m256i sum = _mm256_setzero_si256();
    for (int q = 0; q < 16; ++q)
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, load(tile + q * 64 + half * 32)));
    int32_t* const to = sums + half * 8;
    store(to, _mm256_add_epi32(load(to), _mm256_madd_epi16(sum, wide_ones)));
  }
}

template <bool kColumns>
void pack(const GemmI8Lanes& x) {
  const bool lies_across = x.depth_stride != 1;
  uint8_t* to = x.to;
  for (int64_t p = 0; p < x.depth; p += kI8Steps, to += x.to_tile) {
    const int64_t steps = x.depth - p < kI8Steps ? x.depth - p : kI8Steps;
    const auto fetch = lies_across ? fetch_across : fetch_along;
    if (lies_across == kColumns) {
      fetch(x, p, steps, to);
    } else {
      alignas(64) uint8_t tile[kI8Tile];
      fetch(x, p, steps, tile);
      transpose_tile(tile, to);
    }
    if (x.sums != nullptr) kColumns ? add_column_sums(to, x.sums) : add_row_sums(to, x.sums);
  }
}

}  // namespace

namespace avx2 {
void pack_i8_rows(const GemmI8Lanes& x) { pack<false>(x); }
void pack_i8_columns(const GemmI8Lanes& x) { pack<true>(x); }
}  // namespace avx2

}  // namespace ridge::cpu
