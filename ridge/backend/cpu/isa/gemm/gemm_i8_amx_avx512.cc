// Products of bytes by the tiles of AMX.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"
#include "ridge/backend/cpu/isa/gemm/gemm_i8_tile.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kRowBytes = 64;            // of a tile
constexpr int64_t kPairRows = 2 * kI8Lanes;  // rows of two tiles

// The instructions for tiles read and write memory that g++ 12 does not know of.
inline void order_bytes() { asm volatile("" ::: "memory"); }

void begin() { avx512::gemm_amx_kernels.begin(); }
void end() { avx512::gemm_amx_kernels.end(); }

// Results of rows whose sums are final, some between the products of the rows behind them: tiles
// multiply by themselves.
class Pending {
 public:
  // `steps`: how often some can be given while a pair of tiles' rows is multiplied.
  Pending(const GemmI8Block& t, int64_t steps)
      : t_(t), rows_of_step_((kPairRows + steps - 1) / steps) {}

  void give_some() {
    if (given_ == ready_) return;
    give(given_ + rows_of_step_ < ready_ ? given_ + rows_of_step_ : ready_);
  }
  // Gives the rest, and goes on with rows up to that one, whose sums are there now.
  void go_on(int64_t row) {
    if (t_.results == nullptr) return;
    if (given_ < ready_) give(ready_);
    ready_ = row < t_.rows ? row : t_.rows;
  }

 private:
  void give(int64_t last) {
    order_bytes();
    t_.give(*t_.results, t_.c + given_ % t_.c_rows * t_.c_row, given_, last);
    given_ = last;
  }

  const GemmI8Block& t_;
  int64_t rows_of_step_, given_ = 0, ready_ = 0;
};

// Sixteen rows of op(A).
struct Rows {
  const uint8_t* at;
  int64_t row, tile;

  Rows(const GemmI8Block& t, int64_t first)
      : at(t.a + first * t.a_row), row(t.a_row), tile(t.a_tile) {
    if (t.a_rest == nullptr || first + kI8Lanes <= t.rows) return;
    at = t.a_rest;
    row = kI8Steps;
    tile = kI8Tile;
  }
};

// The products of tile kTile of C, of i8 by i8 or of u8 by i8.
template <bool kSigned, int kTile>
inline void multiply() {
  if constexpr (kSigned) {
    if constexpr (kTile == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (kTile == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (kTile == 2) _tile_dpbssd(2, 5, 6);
    if constexpr (kTile == 3) _tile_dpbssd(3, 5, 7);
  } else {
    if constexpr (kTile == 0) _tile_dpbusd(0, 4, 6);
    if constexpr (kTile == 1) _tile_dpbusd(1, 4, 7);
    if constexpr (kTile == 2) _tile_dpbusd(2, 5, 6);
    if constexpr (kTile == 3) _tile_dpbusd(3, 5, 7);
  }
}

// Tiles 0 to 3 are C, two by two; 4 and 5 are of op(A), 6 and 7 of op(B).
template <bool kTwoRows, bool kTwoColumns, bool kSigned>
void run_tiles(const GemmI8Block& t, int64_t row, int64_t panel, Pending& pending) {
  int32_t* const c = t.c + row % t.c_rows * t.c_row + panel * kI8Lanes;
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
  Rows a(t, row), more(t, kTwoRows ? row + kI8Lanes : row);
  const int8_t* b = t.b + panel * t.b_panel;
  for (int64_t p = 0; p < t.steps; p += kI8Steps, b += kI8Tile) {
    _tile_loadd(4, a.at, a.row);
    _tile_loadd(6, b, kRowBytes);
    multiply<kSigned, 0>();
    if constexpr (kTwoColumns) {
      _tile_loadd(7, b + t.b_panel, kRowBytes);
      multiply<kSigned, 1>();
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, more.at, more.row);
      multiply<kSigned, 2>();
      if constexpr (kTwoColumns) multiply<kSigned, 3>();
    }
    a.at += a.tile;
    more.at += more.tile;
    pending.give_some();
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kTwoColumns) _tile_stored(1, c + kI8Lanes, c_bytes);
  if constexpr (kTwoRows) _tile_stored(2, below, c_bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, below + kI8Lanes, c_bytes);
}

template <bool kSigned>
void run_any(const GemmI8Block& t, int64_t row, int64_t panel, Pending& pending) {
  const bool two_columns = panel + 1 < t.panels;
  if (row + kI8Lanes < t.rows)
    two_columns ? run_tiles<true, true, kSigned>(t, row, panel, pending)
                : run_tiles<true, false, kSigned>(t, row, panel, pending);
  else
    two_columns ? run_tiles<false, true, kSigned>(t, row, panel, pending)
                : run_tiles<false, false, kSigned>(t, row, panel, pending);
}

void block(const GemmI8Block& t) {
  order_bytes();
  const int64_t strips = (t.panels + 1) / 2, across = (t.rows + kPairRows - 1) / kPairRows;
  Pending pending(t, strips * ((t.steps + kI8Steps - 1) / kI8Steps));
  for (int64_t row = 0; row < t.rows; row += kPairRows) {
    for (int64_t panel = 0; panel < t.panels; panel += 2) {
      fetch_next(t, row / kPairRows * strips + panel / 2, strips * across);
      t.a_is_signed ? run_any<true>(t, row, panel, pending)
                    : run_any<false>(t, row, panel, pending);
    }
    pending.go_on(row + kPairRows);
  }
  pending.go_on(t.rows);
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
const GemmI8Kernels gemm_i8_amx_kernels = {begin, end, block, multiply_tiles, true, true};
}

}  // namespace ridge::cpu
