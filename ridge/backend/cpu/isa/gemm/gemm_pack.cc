// Packing of GEMM operands into panels, with widening of 16-bit floats, the narrowing of 16-bit
// results, and the products that are little more than that: of one row with contiguous columns.
// The same bits for every instruction set.
//
// No load or store reaches outside the lanes and depth that a panel names: operands may end at the
// end of a page, and the neighbouring panel may belong to another thread.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/backend/cpu/isa/row_fetch.h"

namespace ridge::cpu {
namespace {

alignas(32) constexpr int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

// Sources: how a vector of kLanes elements is loaded (widened) and stored, whole or its first n.

struct F32 {
  using In = float;
  using T = float;
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static __m256i mask(int n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - n));
  }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const In* p) { return _mm256_loadu_ps(p); }
  static Reg load(const In* p, int n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store(T* p, Reg x) { _mm256_storeu_ps(p, x); }
  static Reg fma(T a, Reg b, Reg c) { return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c); }
  static void store(T* p, Reg x, int n) { _mm256_maskstore_ps(p, mask(n), x); }

  [[gnu::always_inline]] static inline void transpose(Reg (&x)[8]) {
    Reg pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
        quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xee);
      }
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
      x[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
  }

  // The same with the exchange of halves done by the loads, which is quicker: x[i] gets the first
  // four steps of lanes i and i + 4, x[i + 4] the last four.
  static constexpr bool kHalves = true;
  [[gnu::always_inline]] static inline void load_halves(const In* p,
                                                        int64_t lane_stride,
                                                        Reg (&x)[8]) {
    for (int i = 0; i < 8; ++i) {
      const In* from = p + i % 4 * lane_stride + i / 4 * 4;
      x[i] = _mm256_insertf128_ps(
          _mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * lane_stride), 1);
    }
  }
  [[gnu::always_inline]] static inline void transpose_halves(Reg (&x)[8]) {
    for (int i = 0; i < 8; i += 4) {
      const Reg low[2] = {_mm256_unpacklo_ps(x[i], x[i + 1]),
                          _mm256_unpacklo_ps(x[i + 2], x[i + 3])};
      const Reg high[2] = {_mm256_unpackhi_ps(x[i], x[i + 1]),
                           _mm256_unpackhi_ps(x[i + 2], x[i + 3])};
      x[i] = _mm256_shuffle_ps(low[0], low[1], 0x44);
      x[i + 1] = _mm256_shuffle_ps(low[0], low[1], 0xee);
      x[i + 2] = _mm256_shuffle_ps(high[0], high[1], 0x44);
      x[i + 3] = _mm256_shuffle_ps(high[0], high[1], 0xee);
    }
  }
};

__m256 rounded_to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  // A NaN must not round to infinity.
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i both = _mm256_blendv_epi8(near, quiet, is_nan);
  return _mm256_castsi256_ps(
      _mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Beyond 65504 to infinity, as IEEE 754 has it.
__m256 rounded_to_f16(__m256 x) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

template <__m256 (*kRound)(__m256)>
struct RoundedF32 : F32 {
  static Reg load(const In* p) { return kRound(F32::load(p)); }
  static Reg load(const In* p, int n) { return kRound(F32::load(p, n)); }
  static constexpr bool kHalves = false;
};

// The 16-bit types share F32's arithmetic; a partial load goes through a zeroed array.
template <typename Half>
struct Half16 : F32 {
  using In = Half;
  static Reg load(const In* p) {
    return Half16::widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Reg load(const In* p, int n) {
    alignas(16) uint16_t part[8] = {};
    for (int i = 0; i < n; ++i) part[i] = reinterpret_cast<const uint16_t*>(p)[i];
    return Half16::widen(_mm_load_si128(reinterpret_cast<const __m128i*>(part)));
  }
  static Reg widen(__m128i x);
  static constexpr bool kHalves = false;
};

template <>
__m256 Half16<F16Bits>::widen(__m128i x) {
  return _mm256_cvtph_ps(x);
}

template <>
__m256 Half16<BF16Bits>::widen(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

struct F64 {
  using In = double;
  using T = double;
  using Reg = __m256d;
  static constexpr int kLanes = 4;
  static __m256i mask(int n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - 2 * n));
  }
  static Reg zero() { return _mm256_setzero_pd(); }
  static Reg load(const In* p) { return _mm256_loadu_pd(p); }
  static Reg load(const In* p, int n) { return _mm256_maskload_pd(p, mask(n)); }
  static void store(T* p, Reg x) { _mm256_storeu_pd(p, x); }
  static Reg fma(T a, Reg b, Reg c) { return _mm256_fmadd_pd(_mm256_set1_pd(a), b, c); }
  static void store(T* p, Reg x, int n) { _mm256_maskstore_pd(p, mask(n), x); }

  [[gnu::always_inline]] static inline void transpose(Reg (&x)[4]) {
    const Reg low[2] = {_mm256_unpacklo_pd(x[0], x[1]), _mm256_unpacklo_pd(x[2], x[3])};
    const Reg high[2] = {_mm256_unpackhi_pd(x[0], x[1]), _mm256_unpackhi_pd(x[2], x[3])};
    x[0] = _mm256_permute2f128_pd(low[0], low[1], 0x20);
    x[1] = _mm256_permute2f128_pd(high[0], high[1], 0x20);
    x[2] = _mm256_permute2f128_pd(low[0], low[1], 0x31);
    x[3] = _mm256_permute2f128_pd(high[0], high[1], 0x31);
  }
  static constexpr bool kHalves = false;
};

int least(int a, int64_t b) { return b < a ? static_cast<int>(b) : a; }

// Stores the part of a panel's row p that begins at lane i. What lies beyond the row is written
// too, since later rows overwrite it; only at the panel's end, where none follow, is it masked.
template <class S, class Panel>
void put(const Panel& panel, int i, int64_t p, typename S::Reg x) {
  typename S::T* to = panel.to + p * panel.width + i;
  if ((panel.depth - p) * panel.width - i >= S::kLanes)
    S::store(to, x);
  else
    S::store(to, x, least(S::kLanes, panel.width - i));
}

template <class S>
typename S::Reg get(const typename S::In* from, int64_t there) {
  return there >= S::kLanes ? S::load(from)
         : there <= 0       ? S::zero()
                            : S::load(from, static_cast<int>(there));
}

// Rows of a panel as kStrips whole vectors each: a row that ends inside a vector reads on into the
// operand's next row, and spills into the panel's next row, which is written later.
template <class S, int kStrips>
void copy_rows(const GemmPanel<typename S::In, typename S::T>& panel, int64_t rows) {
  const typename S::In* from = panel.from;
  typename S::T* to = panel.to;
  for (int64_t p = 0; p < rows; ++p, from += panel.depth_stride, to += panel.width)
    for (int i = 0; i < kStrips; ++i) S::store(to + i * S::kLanes, S::load(from + i * S::kLanes));
}

// Lanes contiguous in the operand: every step of depth is a short copy.
template <class S>
void copy_lanes(const GemmPanel<typename S::In, typename S::T>& panel) {
  // Rows that copy_rows may do: another follows in the operand, and enough follow in the panel.
  int64_t quick = 0;
  if (panel.lanes == panel.width) {
    quick = panel.depth;
    if (panel.width % S::kLanes != 0)
      quick = panel.depth_stride < S::kLanes ? 0 : quick - 1 - S::kLanes / panel.width;
  }
  const int strips = (panel.width + S::kLanes - 1) / S::kLanes;
  if (strips == 1)
    copy_rows<S, 1>(panel, quick);
  else if (strips == 2)
    copy_rows<S, 2>(panel, quick);
  else if (strips == 4)
    copy_rows<S, 4>(panel, quick);
  else
    quick = 0;
  for (int64_t p = quick < 0 ? 0 : quick; p < panel.depth; ++p)
    for (int i = 0; i < panel.width; i += S::kLanes)
      put<S>(panel, i, p, get<S>(panel.from + p * panel.depth_stride + i, panel.lanes - i));
}

// kLanes steps of kLanes lanes, transposed.
template <class S>
[[gnu::always_inline]] inline void load_transposed(const typename S::In* from,
                                                   int64_t lane_stride,
                                                   typename S::Reg (&block)[S::kLanes]) {
  if constexpr (S::kHalves) {
    S::load_halves(from, lane_stride, block);
    S::transpose_halves(block);
  } else {
    for (int j = 0; j < S::kLanes; ++j) block[j] = S::load(from + j * lane_stride);
    S::transpose(block);
  }
}

// kLanes steps of kLanes lanes, transposed; where there are fewer the last one is repeated.
template <class S>
[[gnu::always_inline]] inline void load_block(const typename S::In* from,
                                              int64_t stride,
                                              int there,
                                              typename S::Reg (&x)[S::kLanes]) {
  if (there >= S::kLanes) return load_transposed<S>(from, stride, x);
  for (int j = 0; j < S::kLanes; ++j) x[j] = S::load(from + (j < there ? j : there - 1) * stride);
  S::transpose(x);
}

// Transposes kLanes steps of kLanes lanes, of which so many are there: what is made of the others
// is dropped or overwritten.
template <class S>
[[gnu::always_inline]] inline void transpose_block(
    const typename S::In* from, int64_t lane_stride, int there, typename S::T* to, int64_t width) {
  typename S::Reg block[S::kLanes];
  load_block<S>(from, lane_stride, there, block);
  for (int q = 0; q < S::kLanes; ++q) S::store(to + q * width, block[q]);
}

// Does the same as transpose_block at the panel's end, where steps are fewer or must not spill, and
// for lanes that are all beyond the panel's.
template <class S>
void transpose_edge(const GemmPanel<typename S::In, typename S::T>& panel, int i, int64_t p) {
  constexpr int kLanes = S::kLanes;
  const typename S::In* from = panel.from + i * panel.lane_stride + p;
  const int64_t steps = panel.depth - p;
  const int there = panel.lanes - i;
  typename S::Reg block[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    const typename S::In* lane = j < there ? from + j * panel.lane_stride : panel.from + p;
    block[j] = steps >= kLanes ? S::load(lane) : S::load(lane, static_cast<int>(steps));
  }
  S::transpose(block);
  for (int q = 0; q < kLanes; ++q)
    if (q < steps) put<S>(panel, i, p + q, block[q]);
}

// The same apart from the loop over lines, whose registers it would take.
template <class S>
[[gnu::noinline]] void transpose_few(const GemmPanel<typename S::In, typename S::T>& panel,
                                     int i,
                                     int64_t p) {
  transpose_block<S>(panel.from + i * panel.lane_stride + p,
                     panel.lane_stride,
                     panel.lanes - i,
                     panel.to + p * panel.width + i,
                     panel.width);
}

// So many times twice kLanes steps of kLanes lanes, from step p on; the step behind them.
template <class S>
[[gnu::noinline]] int64_t transpose_lines(const GemmPanel<typename S::In, typename S::T>& panel,
                                          int i,
                                          int64_t p,
                                          int64_t lines) {
  constexpr int kLanes = S::kLanes;
  constexpr int kAhead = 128 / sizeof(typename S::In);  // two lines
  const int64_t lane_stride = panel.lane_stride, width = panel.width;
  const typename S::In* from = panel.from + i * lane_stride + p;
  typename S::T* to = panel.to + p * width + i;
  for (int64_t line = 0; line < lines; ++line) {
    for (int j = 0; j < kLanes; ++j) __builtin_prefetch(from + j * lane_stride + kAhead, 0, 3);
    transpose_block<S>(from, lane_stride, kLanes, to, width);
    transpose_block<S>(from + kLanes, lane_stride, kLanes, to + kLanes * width, width);
    from += 2 * kLanes;
    to += 2 * kLanes * width;
  }
  return p + lines * 2 * kLanes;
}

// Depth contiguous in the operand: lines of 64 bytes are used up before the next lanes, which in
// a matrix of 2^n columns would evict them. The lanes go backwards, so that what spills into the
// next row is overwritten.
template <class S>
void transpose_lanes(const GemmPanel<typename S::In, typename S::T>& panel) {
  constexpr int kLanes = S::kLanes;
  const int last = (panel.width - 1) / kLanes * kLanes;
  // Blocks that begin before this step end with a row from which a spill stays in the panel.
  const int64_t whole =
      panel.depth - kLanes + (panel.width % kLanes == 0 ? 1 : -(kLanes - 1) / panel.width);
  // Some lanes go on for a while before the next ones: of lanes a multiple of a page apart, which
  // share sets of the first-level cache, what is fetched of all would not stay there.
  constexpr int64_t kSteps = 128;
  for (int64_t block = 0; block < panel.depth; block += kSteps) {
    const int64_t end = block + kSteps < panel.depth ? block + kSteps : panel.depth;
    const int64_t limit = whole - kLanes < end ? whole - kLanes : end;
    const int64_t lines = limit > block ? (limit - block + 2 * kLanes - 1) / (2 * kLanes) : 0;
    for (int i = last; i >= 0; i -= kLanes) {
      int64_t p = block;
      if (i + kLanes <= panel.lanes) p = transpose_lines<S>(panel, i, p, lines);
      for (; p < end; p += kLanes) {
        if (p < whole && i < panel.lanes)
          transpose_few<S>(panel, i, p);
        else
          transpose_edge<S>(panel, i, p);
      }
    }
  }
}

template <class S>
void pack(const GemmPanel<typename S::In, typename S::T>& panel) {
  if (panel.lane_stride == 1)
    copy_lanes<S>(panel);
  else
    transpose_lanes<S>(panel);
}

// The chains of kLanes columns with some rows.
template <class S, int kRows>
struct Chains {
  static constexpr int kLanes = S::kLanes;
  typename S::Reg sum[kRows];

  // kLanes steps.
  [[gnu::always_inline]] void step(const GemmDots<typename S::T>& d,
                                   int64_t p,
                                   const typename S::T* b,
                                   int there) {
    typename S::Reg block[kLanes];
    load_block<S>(b + p, d.lane_stride, there, block);
    add(d.a + p * kRows, kLanes, block);
  }

  // Fewer steps.
  void end(
      const GemmDots<typename S::T>& d, int64_t p, const typename S::T* b, int there, int steps) {
    typename S::Reg block[kLanes];
    for (int j = 0; j < kLanes; ++j)
      block[j] = S::load(b + p + (j < there ? j : there - 1) * d.lane_stride, steps);
    S::transpose(block);
    add(d.a + p * kRows, steps, block);
  }

 private:
  [[gnu::always_inline]] void add(const typename S::T* a,
                                  int steps,
                                  const typename S::Reg (&block)[kLanes]) {
    for (int q = 0; q < kLanes; ++q)
      for (int r = 0; r < kRows; ++r)
        if (q < steps) sum[r] = S::fma(a[q * kRows + r], block[q], sum[r]);
  }
};

// Both halves of a cache line are read before other lanes, which in a matrix of 2^n columns would
// evict it.
template <class S, int kRows>
void dots_of(const GemmDots<typename S::T>& d) {
  using T = typename S::T;
  constexpr int kLanes = S::kLanes;
  static_assert(GemmDots<T>::kLanes == 2 * kLanes);
  const int halves = d.lanes > kLanes ? 2 : 1;
  Chains<S, kRows> chains[2];
  for (auto& half : chains)
    for (auto& x : half.sum) x = S::zero();
  RowFetch<T> fetch(d.b + d.ahead, d.depth, d.lane_stride);
  const bool splits = reinterpret_cast<uintptr_t>(d.b) % 64 != 0;
  for (int64_t p = 0; p < d.depth;) {
    const int64_t end = p + kLanes * (p == 0 && splits ? 1 : 2);
    for (int half = 0; half < halves; ++half) {
      const T* const b = d.b + half * kLanes * d.lane_stride;
      const int there = least(kLanes, d.lanes - half * kLanes);
      for (int j = 0; j < kLanes; ++j) fetch.next();
      int64_t q = p;
      for (; q < end && q + kLanes <= d.depth; q += kLanes) chains[half].step(d, q, b, there);
      if (q < end && q < d.depth) chains[half].end(d, q, b, there, static_cast<int>(d.depth - q));
    }
    p = end;
  }
  for (int r = 0; r < kRows; ++r)
    for (int half = 0; half < 2; ++half)
      S::store(d.sums + r * GemmDots<T>::kLanes + half * kLanes, chains[half].sum[r]);
}

template <class S>
void dots(const GemmDots<typename S::T>& d) {
  switch (d.rows) {
    case 1:
      return dots_of<S, 1>(d);
    case 2:
      return dots_of<S, 2>(d);
    case 3:
      return dots_of<S, 3>(d);
    default:
      return dots_of<S, 4>(d);
  }
}

__m128i to_f16(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }

__m128i to_bf16(__m256 x) {
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(rounded_to_bf16(x)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

template <__m128i (*kNarrow)(__m256), typename Half>
void narrow(const float* from, Half* to, int64_t n) {
  uint16_t* bits = reinterpret_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bits + i), kNarrow(F32::load(from + i)));
  if (i == n) return;
  alignas(16) uint16_t part[8];
  const int rest = least(8, n - i);
  _mm_store_si128(reinterpret_cast<__m128i*>(part), kNarrow(F32::load(from + i, rest)));
  for (int j = 0; j < rest; ++j) bits[i + j] = part[j];
}

}  // namespace

namespace RIDGE_ISA {
const GemmKernels gemm_kernels = {&gemm_f32,
                                  &gemm_f64,
                                  pack<F32>,
                                  pack<F64>,
                                  pack<Half16<F16Bits>>,
                                  pack<Half16<BF16Bits>>,
                                  pack<RoundedF32<rounded_to_bf16>>,
                                  pack<RoundedF32<rounded_to_f16>>,
                                  dots<F32>,
                                  dots<F64>,
                                  narrow<to_f16, F16Bits>,
                                  narrow<to_bf16, BF16Bits>};
}

}  // namespace ridge::cpu
