// The measuring loop of bf16 products for AMX.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/peak/peak_kernels.h"

namespace ridge::cpu::avx512 {

// Six tiles of sums, one chain each, by products of the two others.
double dot_bf16_tiles(int64_t rounds, float* sink) {
  struct alignas(64) Shapes {
    uint8_t palette = 1;
    uint8_t rest[15] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Shapes kShapes;
  constexpr double kFlops = 2.0 * 16 * 16 * 32;
  alignas(64) float first[16 * 16] = {};
  asm volatile("" ::: "memory");
  _tile_loadconfig(&kShapes);
  _tile_loadd(6, first, 64);
  _tile_loadd(7, first, 64);
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
  _tile_stored(0, first, 64);
  _tile_release();
  asm volatile("" ::: "memory");
  *sink = first[0];
  return 6 * kFlops * static_cast<double>(rounds);
}

}  // namespace ridge::cpu::avx512
