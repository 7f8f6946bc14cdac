// Products of bytes by the tiles of AMX.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"
#include "ridge/backend/cpu/isa/gemm/gemm_i8_tile.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kRowBytes = 64;  // of a tile

// The instructions for tiles read and write memory that g++ 12 does not know of.
inline void order_bytes() { asm volatile("" ::: "memory"); }

void begin() { avx512::gemm_amx_kernels.begin(); }
void end() { avx512::gemm_amx_kernels.end(); }

// Tiles 0 to 3 are C, two by two; 4 and 5 are of op(A), 6 and 7 of op(B).
template <bool kTwoRows, bool kTwoColumns>
void run_tiles(const GemmI8Block& t, int64_t row, int64_t panel) {
  int32_t* const c = t.c + row * t.c_row + panel * kI8Lanes;
  int32_t* const below = c + kI8Lanes * t.c_row;
  const int64_t c_bytes = t.c_row * 4;
  if (t.add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kTwoColumns) _tile_loadd(1, c + kI8Lanes, c_bytes);
    if constexpr (kTwoRows) _tile_loadd(2, below, c_bytes);
    if constexpr (kTwoRows && kTwoColumns) _tile_loadd(3, below + kI8Lanes, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint8_t* a = t.a + row * kI8Steps;
  const int8_t* b = t.b + panel * t.b_panel;
  for (int64_t p = 0; p < t.steps; p += kI8Steps, a += t.a_tile, b += kI8Tile) {
    _tile_loadd(4, a, kRowBytes);
    _tile_loadd(6, b, kRowBytes);
    _tile_dpbusd(0, 4, 6);
    if constexpr (kTwoColumns) {
      _tile_loadd(7, b + t.b_panel, kRowBytes);
      _tile_dpbusd(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, a + kI8Tile, kRowBytes);
      _tile_dpbusd(2, 5, 6);
      if constexpr (kTwoColumns) _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kTwoColumns) _tile_stored(1, c + kI8Lanes, c_bytes);
  if constexpr (kTwoRows) _tile_stored(2, below, c_bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, below + kI8Lanes, c_bytes);
}

void block(const GemmI8Block& t) {
  order_bytes();
  const int64_t strips = (t.panels + 1) / 2, across = (t.rows + 2 * kI8Lanes - 1) / (2 * kI8Lanes);
  for (int64_t panel = 0; panel < t.panels; panel += 2) {
    const bool two_columns = panel + 1 < t.panels;
    for (int64_t row = 0; row < t.rows; row += 2 * kI8Lanes) {
      fetch_next(t, panel / 2 * across + row / (2 * kI8Lanes), strips * across);
      if (row + kI8Lanes < t.rows)
        two_columns ? run_tiles<true, true>(t, row, panel) : run_tiles<true, false>(t, row, panel);
      else
        two_columns ? run_tiles<false, true>(t, row, panel)
                    : run_tiles<false, false>(t, row, panel);
    }
  }
  order_bytes();
}

// Four tiles of sums, one chain each, by products of two pairs of others.
double multiply_tiles(int64_t rounds, int32_t* sink) {
  constexpr double kOperations = 2.0 * 16 * 16 * 64;
  alignas(64) int32_t tiles[4][16 * 16];
  fill_for_peak(tiles, sizeof(tiles));
  order_bytes();
  begin();
  _tile_loadd(4, tiles[0], kRowBytes);
  _tile_loadd(5, tiles[1], kRowBytes);
  _tile_loadd(6, tiles[2], kRowBytes);
  _tile_loadd(7, tiles[3], kRowBytes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_stored(0, tiles[0], kRowBytes);
  end();
  order_bytes();
  *sink = tiles[0][0];
  return 4 * kOperations * static_cast<double>(rounds);
}

}  // namespace

namespace avx512 {
const GemmI8Kernels gemm_i8_amx_kernels = {begin, end, block, multiply_tiles};
}

}  // namespace ridge::cpu
