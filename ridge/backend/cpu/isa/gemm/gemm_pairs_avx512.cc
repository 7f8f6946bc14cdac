// The tile of bf16 products for AVX-512 with BF16, and the packing of pairs. A register of pairs
// passes as floats where it is only moved, so that the tile is that of f32 with another fma.
//
// vdpbf16ps rounds after each of its two products, to nearest even, and takes subnormal numbers for
// zero, as the conversion does.
#include "ridge/backend/cpu/isa/gemm/gemm_tile.h"

namespace ridge::cpu {
namespace {

// g++ 12 warns of an uninitialised operand inside the forms without a mask (GCC bug 105593).
constexpr __mmask16 kAll = 0xffff;

struct Vector {
  using Elem = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 14;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const Elem* p) { return _mm512_loadu_ps(p); }
  static Reg broadcast(const Elem* p) { return _mm512_set1_ps(*p); }
  static Reg fma(Reg a, Reg b, Reg c) {
    return _mm512_dpbf16_ps(c, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static void store(Elem* p, Reg x) { _mm512_storeu_ps(p, x); }
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Reg load(const Elem* p, __mmask16 some) { return _mm512_maskz_loadu_ps(some, p); }
  static void store(Elem* p, Reg x, __mmask16 some) { _mm512_mask_storeu_ps(p, some, x); }
  static void prefetch(const Elem* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
};

void tile(const GemmTile<float>& t) {
  const std::make_integer_sequence<int, Vector::kRows> rows;
  if (t.cols <= Vector::kLanes)
    compute_rows<Vector, 1, false, false>(t, rows);
  else
    compute_rows<Vector, 2, false, false>(t, rows);
}

constexpr int kLanes = 16;
constexpr int64_t kAhead = 96;  // lanes: some panels

int least(int a, int64_t b) { return b < a ? static_cast<int>(b) : a; }
__mmask16 first16(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
__mmask32 first32(int n) { return static_cast<__mmask32>((uint64_t{1} << n) - 1u); }

// Sources. along(): the first n of 32 steps of one lane, as pairs. across(): of two steps, the
// lanes of the mask, as pairs; the second step may be missing.

struct F32 {
  using In = float;
  static __m512i round(__m512 low, __m512 high) {
    return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(high, low));
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

// Stores the part of a panel's row q that begins at lane i. What lies beyond the row is written
// too, since later rows overwrite it; only at the panel's end, where none follow, is it masked.
template <class Panel>
void put(const Panel& panel, int i, int64_t q, __m512i x) {
  float* to = panel.to + q * panel.width + i;
  const int64_t left = ((panel.depth + 1) / 2 - q) * panel.width - i;
  if (left >= kLanes)
    _mm512_storeu_si512(to, x);
  else
    _mm512_mask_storeu_epi32(to, first16(static_cast<int>(left)), x);
}

// Lanes contiguous in the operand: two of its rows make one of the panel.
template <class S>
void pack_across(const GemmPanel<typename S::In, float>& panel) {
  for (int64_t p = 0; p < panel.depth; p += 2) {
    const typename S::In* from = panel.from + p * panel.depth_stride;
    const typename S::In* next = p + 1 < panel.depth ? from + panel.depth_stride : nullptr;
    // The hardware's prefetcher follows too few rows that lie this far apart.
    _mm_prefetch(reinterpret_cast<const char*>(from + kAhead), _MM_HINT_T1);
    if (next != nullptr) _mm_prefetch(reinterpret_cast<const char*>(next + kAhead), _MM_HINT_T1);
    for (int i = 0; i < panel.lanes; i += kLanes) {
      const __mmask16 lanes = first16(least(kLanes, panel.lanes - i));
      put(panel, i, p / 2, S::across(from + i, next == nullptr ? next : next + i, lanes));
    }
  }
}

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

// Depth contiguous in the operand: 16 lanes of 32 steps are transposed in registers as 16 x 16
// pairs. Both cache lines of a lane are used up before those of the next. The lanes go backwards,
// so that what spills into the next row is overwritten.
template <class S>
void pack_along(const GemmPanel<typename S::In, float>& panel) {
  const int last = (panel.lanes - 1) / kLanes * kLanes;
  for (int64_t p = 0; p < panel.depth; p += 2 * kLanes)
    for (int i = last; i >= 0; i -= kLanes) {
      const int lanes = least(kLanes, panel.lanes - i);
      const int steps = least(2 * kLanes, panel.depth - p);
      const typename S::In* from = panel.from + i * panel.lane_stride + p;
      __m512i block[kLanes];
      // The first lane stands in for those beyond the panel's, whose products are dropped.
      for (int j = 0; j < kLanes; ++j) {
        const typename S::In* lane = from + (j < lanes ? j : 0) * panel.lane_stride;
        block[j] = steps == 2 * kLanes ? S::along(lane) : S::along(lane, steps);
      }
      transpose(block);
      for (int q = 0; q < kLanes; ++q)
        if (2 * q < steps) put(panel, i, p / 2 + q, block[q]);
    }
}

template <class S>
void pack(const GemmPanel<typename S::In, float>& panel) {
  if (panel.lane_stride == 1)
    pack_across<S>(panel);
  else
    pack_along<S>(panel);
}

}  // namespace

namespace avx512 {
const GemmPairKernels gemm_pair_kernels = {
    {Vector::kRows, Vector::kVectors* Vector::kLanes, Vector::kLanes, tile, nullptr},
    pack<F32>,
    pack<BF16>};
}

}  // namespace ridge::cpu
