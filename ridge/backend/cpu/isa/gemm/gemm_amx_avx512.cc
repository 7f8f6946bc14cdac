// Products of bf16 by the tiles of AMX, and the packing of their operands.
#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"
#include "ridge/backend/cpu/isa/gemm/gemm_pairs.h"

namespace ridge::cpu {
namespace {

constexpr int kSide = 2 * static_cast<int>(kAmxLanes);  // rows and columns of a block
constexpr int64_t kRowBytes = 64;                       // of a tile

// The instructions for tiles read and write memory that g++ 12 does not know of.
inline void order_memory() { asm volatile("" ::: "memory"); }

struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t rest[15] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void begin() {
  static constexpr TileShapes kShapes;
  _tile_loadconfig(&kShapes);
}

void end() { _tile_release(); }

// Tiles 0 to 3 are C, two by two; 4 and 5 are of op(A), 6 and 7 of op(B).
template <bool kTwoRows, bool kTwoColumns>
void load(const float* c, int64_t row_bytes) {
  const float* const below = c + kAmxLanes * (row_bytes / 4);
  _tile_loadd(0, c, row_bytes);
  if constexpr (kTwoColumns) _tile_loadd(1, c + kAmxLanes, row_bytes);
  if constexpr (kTwoRows) _tile_loadd(2, below, row_bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_loadd(3, below + kAmxLanes, row_bytes);
}

template <bool kTwoRows, bool kTwoColumns>
void store(float* c, int64_t row_bytes) {
  float* const below = c + kAmxLanes * (row_bytes / 4);
  _tile_stored(0, c, row_bytes);
  if constexpr (kTwoColumns) _tile_stored(1, c + kAmxLanes, row_bytes);
  if constexpr (kTwoRows) _tile_stored(2, below, row_bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, below + kAmxLanes, row_bytes);
}

template <bool kTwoRows, bool kTwoColumns>
void multiply(const GemmAmxBlock& t) {
  for (int64_t i = 0; i < t.tiles; ++i) {
    const BF16Bits *const a = t.a + i * kAmxTile, *const b = t.b + i * kAmxTile;
    _tile_loadd(4, a, kRowBytes);
    _tile_loadd(6, b, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoColumns) {
      _tile_loadd(7, b + t.b_panel, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, a + t.a_panel, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
    }
  }
}

template <bool kTwoRows, bool kTwoColumns>
void run(const GemmAmxBlock& t, float* c, int64_t row_bytes) {
  order_memory();
  if (t.add) {
    load<kTwoRows, kTwoColumns>(c, row_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  multiply<kTwoRows, kTwoColumns>(t);
  store<kTwoRows, kTwoColumns>(c, row_bytes);
  order_memory();
}

// A block that does not fill its tiles has them in memory of its own.
template <bool kTwoRows, bool kTwoColumns>
void run_part(const GemmAmxBlock& t) {
  alignas(64) float sums[kSide * kSide];
  for (int i = 0; t.add && i < t.rows; ++i)
    for (int j = 0; j < t.cols; ++j) sums[i * kSide + j] = t.c[i * t.c_row + j];
  run<kTwoRows, kTwoColumns>(t, sums, kSide * 4);
  for (int i = 0; i < t.rows; ++i)
    for (int j = 0; j < t.cols; ++j) t.c[i * t.c_row + j] = sums[i * kSide + j];
}

template <bool kTwoRows, bool kTwoColumns>
void run_either(const GemmAmxBlock& t) {
  const bool is_whole = t.rows % kAmxLanes == 0 && t.cols % kAmxLanes == 0;
  is_whole ? run<kTwoRows, kTwoColumns>(t, t.c, t.c_row * 4) : run_part<kTwoRows, kTwoColumns>(t);
}

void block(const GemmAmxBlock& t) {
  const bool two_columns = t.cols > kAmxLanes;
  if (t.rows > kAmxLanes)
    two_columns ? run_either<true, true>(t) : run_either<true, false>(t);
  else
    two_columns ? run_either<false, true>(t) : run_either<false, false>(t);
}

// Sums are no subnormal numbers, which the instruction would take for zero.
void narrow(
    const float* from, int64_t from_row, BF16Bits* to, int64_t to_row, int64_t rows, int cols) {
  const __mmask32 some = first32(cols);
  for (int64_t i = 0; i < rows; ++i, from += from_row, to += to_row)
    _mm512_mask_storeu_epi16(
        to, some, F32<false>::round(_mm512_loadu_ps(from), _mm512_loadu_ps(from + kAmxLanes)));
}

// Sixteen registers of 16 pairs, of depth steps [p, p + 32): a lane each where depth is contiguous,
// else a pair of steps each, of all lanes. What lies beyond the panel is zero.
template <class S>
void fetch(const GemmAmxPanel<typename S::In>& panel, int64_t p, __m512i (&x)[16]) {
  const typename S::In* const from = panel.from + p * panel.depth_stride;
  const int steps = least(static_cast<int>(kAmxSteps), panel.depth - p);
  const __m512i zero = _mm512_setzero_si512();
  if (panel.depth_stride == 1) {
    for (int i = 0; i < 16; ++i) {
      const typename S::In* const lane = from + (i < panel.lanes ? i : 0) * panel.lane_stride;
      x[i] = i >= panel.lanes ? zero : steps == kAmxSteps ? S::along(lane) : S::along(lane, steps);
    }
    return;
  }
  const __mmask16 lanes = first16(panel.lanes);
  for (int q = 0; q < 16; ++q) {
    const typename S::In* const step = from + 2 * q * panel.depth_stride;
    x[q] = 2 * q >= steps
               ? zero
               : S::across(step, 2 * q + 1 < steps ? step + panel.depth_stride : nullptr, lanes);
  }
}

template <class S, bool kColumns>
void pack(const GemmAmxPanel<typename S::In>& panel) {
  const bool lies_across = panel.depth_stride != 1;
  BF16Bits* to = panel.to;
  for (int64_t p = 0; p < panel.depth; p += kAmxSteps, to += kAmxTile) {
    __m512i x[16];
    fetch<S>(panel, p, x);
    if (lies_across != kColumns) transpose(x);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * kAmxSteps, x[i]);
  }
}

void place_row(const BF16Bits* from, int64_t tiles, BF16Bits* row) {
  if (from == nullptr)
    for (int64_t i = 0; i < tiles; ++i)
      _mm512_storeu_si512(row + i * kAmxTile, _mm512_setzero_si512());
  else
    for (int64_t i = 0; i < tiles; ++i)
      _mm512_storeu_si512(row + i * kAmxTile, _mm512_loadu_si512(from + i * kAmxSteps));
}

// Six tiles of sums, one chain each, by products of the two others.
double multiply_in_registers(int64_t rounds, float* sink) {
  constexpr double kFlops = 2.0 * 16 * 16 * 32;
  alignas(64) float first[16 * 16] = {};
  order_memory();
  begin();
  _tile_loadd(6, first, kRowBytes);
  _tile_loadd(7, first, kRowBytes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, first, kRowBytes);
  end();
  order_memory();
  *sink = first[0];
  return 6 * kFlops * static_cast<double>(rounds);
}

}  // namespace

namespace avx512 {
const GemmAmxKernels gemm_amx_kernels = {begin,
                                         end,
                                         block,
                                         narrow,
                                         pack<F32<true>, false>,
                                         pack<BF16, false>,
                                         pack<F32<true>, true>,
                                         pack<BF16, true>,
                                         place_row,
                                         multiply_in_registers};
}

}  // namespace ridge::cpu
