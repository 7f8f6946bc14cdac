// Products of bytes by vpdpbusd over a vector type V. Internal linkage, as in gemm_tile.h.
#pragma once

#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu {
namespace {

// Part `i` of `parts` of the next block's panels, into the second-level cache.
inline void fetch_next(const GemmI8Block& t, int64_t i, int64_t parts) {
  if (t.next == nullptr) return;
  const int64_t lines = t.next_bytes / 64;
  for (int64_t panel = 0; panel < t.next_panels; ++panel)
    for (int64_t line = lines * i / parts; line < lines * (i + 1) / parts; ++line)
      _mm_prefetch(t.next + panel * t.b_panel + line * 64, _MM_HINT_T1);
}

// Calls part.template run<N>(row) for runs of at most `kMost` rows of nearly equal number.
template <int kMost, class Part>
void for_rows(int64_t rows, const Part& part) {
  const int64_t runs = (rows + kMost - 1) / kMost;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t row = rows * i / runs;
    part.fetch(i, runs);
    switch (rows * (i + 1) / runs - row) {
      case 1:
        part.template run<1>(row);
        break;
      case 2:
        part.template run<2>(row);
        break;
      case 3:
        part.template run<3>(row);
        break;
      case 4:
        part.template run<4>(row);
        break;
      case 5:
        part.template run<5>(row);
        break;
      default:
        part.template run<6>(row);
    }
  }
}

// Some rows by kUnits registers' columns from register `unit` on.
template <class V, int kUnits>
struct VnniPart {
  static constexpr int kUnitsOfPanel = static_cast<int>(kI8Lanes) / V::kWidth;
  const GemmI8Block& t;
  int64_t unit;

  // All calls of for_rows() fetch what is next together.
  void fetch(int64_t i, int64_t runs) const {
    const int64_t calls = t.panels * kUnitsOfPanel / kUnits;
    fetch_next(t, unit / kUnits * runs + i, calls * runs);
  }
  // The products of a quad of steps.
  template <int kRows>
  void add_quad(typename V::Reg (&sums)[kRows][kUnits], const uint8_t* a, const int8_t* b) const {
    typename V::Reg columns[kUnits];
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u)
      columns[u] = V::load(b + u / kUnitsOfPanel * t.b_panel + u % kUnitsOfPanel * V::kWidth * 4);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename V::Reg x = V::broadcast(a + r * kI8Steps);
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) sums[r][u] = V::dot(sums[r][u], x, columns[u]);
    }
  }

  template <int kRows>
  void run(int64_t row) const {
    using Reg = typename V::Reg;
    int32_t* const c = t.c + row * t.c_row + unit * V::kWidth;
    Reg sums[kRows][kUnits];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u)
        sums[r][u] = t.add ? V::load(c + r * t.c_row + u * V::kWidth) : V::zero();
    const int8_t* b = t.b + unit / kUnitsOfPanel * t.b_panel + unit % kUnitsOfPanel * V::kWidth * 4;
    const uint8_t* a = t.a + row * kI8Steps;
    const int64_t whole = t.steps / kI8Steps;
    for (int64_t tile = 0; tile < whole; ++tile, a += t.a_tile, b += kI8Tile) {
      // The loop is unrolled by hand, because g++ 12 ignores the pragma, and instructions that
      // count a loop occupy the ports of products.
      for (int q = 0; q < 16; q += 4) {
        add_quad(sums, a + q * 4, b + q * 64);
        add_quad(sums, a + q * 4 + 4, b + q * 64 + 64);
        add_quad(sums, a + q * 4 + 8, b + q * 64 + 128);
        add_quad(sums, a + q * 4 + 12, b + q * 64 + 192);
      }
    }
    const int64_t quads = (t.steps - whole * kI8Steps + 3) / 4;
    for (int64_t q = 0; q < quads; ++q) add_quad(sums, a + q * 4, b + q * 64);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) V::store(c + r * t.c_row + u * V::kWidth, sums[r][u]);
  }
};

constexpr int kI8Chains = 12;  // as in peak_loops.h

// Operands of the loops that measure peaks: bytes of a linear congruential generator of Knuth's.
inline void fill_for_peak(void* to, int bytes) {
  uint32_t x = 1;
  for (int i = 0; i < bytes; ++i) {
    x = x * 1664525u + 1013904223u;
    static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(x >> 24);
  }
}

// Chains of V::dot, each of V::kProducts products.
template <class V>
double run_dots(int64_t rounds, int32_t* sink) {
  alignas(64) uint8_t bytes[2][64];
  fill_for_peak(bytes, sizeof(bytes));
  typename V::Reg a = V::load(bytes[0]), b = V::load(bytes[1]), x[kI8Chains];
#pragma GCC unroll 16
  for (int i = 0; i < kI8Chains; ++i) x[i] = V::zero();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kI8Chains; ++i) {
      x[i] = V::dot(x[i], a, b);
      asm volatile("" : "+v"(a), "+v"(x[i]));  // else one product would do for all chains
    }
  }
  alignas(64) int32_t lanes[16];
  typename V::Reg sum = x[0];
#pragma GCC unroll 16
  for (int i = 1; i < kI8Chains; ++i) sum = V::dot(sum, x[i], b);
  V::store(lanes, sum);
  *sink = lanes[0];
  return 2.0 * V::kProducts * kI8Chains * static_cast<double>(rounds);
}

}  // namespace
}  // namespace ridge::cpu
