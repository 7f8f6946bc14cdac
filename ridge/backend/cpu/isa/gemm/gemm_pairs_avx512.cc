// The tile of bf16 products for AVX-512 with BF16, and the packing of pairs. A register of pairs
// passes as floats where it is only moved, so that the tile is that of f32 with another fma.
//
// vdpbf16ps rounds after each of its two products, to nearest even, and takes subnormal numbers for
// zero, as the conversion does.
#include "ridge/backend/cpu/isa/gemm/gemm_pairs.h"
#include "ridge/backend/cpu/isa/gemm/gemm_tile.h"

namespace ridge::cpu {
namespace {

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

constexpr int64_t kAhead = 96;  // lanes: some panels

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
    pack<F32<false>>,
    pack<BF16>};
}

}  // namespace ridge::cpu
