// The interface of the kernels of AMX to their driver (gemm_amx.cc): products of bf16 by tiles.
//
// A tile of op(A) holds 16 rows by 32 steps of depth, row by row. One of op(B) holds 16 columns by
// 32 steps: for each pair of steps the two elements of each column. A panel is the tiles of 16 rows
// or 16 columns one after another, over the whole depth, padded with zeros.
#pragma once

#include <cstdint>

#include "ridge/backend/cpu/isa/half_bits.h"

namespace ridge::cpu {

inline constexpr int64_t kAmxLanes = 16;  ///< Rows or columns of a panel.
inline constexpr int64_t kAmxSteps = 32;  ///< Steps of depth of a tile.
inline constexpr int64_t kAmxTile = kAmxLanes * kAmxSteps;

/// Up to 32 by 32 elements of C: the products of so many tiles of one or two panels of each side.
///
/// An element is added up tile by tile. Of a tile's 16 pairs the first elements are one fma chain
/// from zero, the second ones another; their sum, rounded, is added to the element. Subnormal
/// numbers are taken for zero, and results that would be subnormal are zero.
struct GemmAmxBlock {
  int64_t tiles;      // of depth
  const BF16Bits* a;  // panels of op(A)
  int64_t a_panel;    // elements from a panel to the next
  const BF16Bits* b;  // panels of op(B)
  int64_t b_panel;
  float* c;
  int64_t c_row;   // elements from a row to the next
  int rows, cols;  // 1 to 32
  bool add;        // sums go on from those in C, else from zero
};

/// One panel to pack: element (i, p) lies at from[i * lane_stride + p * depth_stride], i < lanes,
/// p < depth; one of the strides is 1. f32 is rounded to nearest even.
template <typename In>
struct GemmAmxPanel {
  const In* from;
  int64_t lane_stride;
  int64_t depth_stride;
  int64_t depth;
  int lanes;     // 1 to 16
  BF16Bits* to;  // aligned to 64 bytes
};

struct GemmAmxKernels {
  // A thread calls begin() before its first block, and end() behind its last one.
  void (*begin)();
  void (*end)();
  void (*block)(const GemmAmxBlock&);
  // Rounds `rows` rows of up to 32 sums to nearest even.
  void (*narrow)(
      const float* from, int64_t from_row, BF16Bits* to, int64_t to_row, int64_t rows, int cols);
  void (*pack_rows_f32)(const GemmAmxPanel<float>&);
  void (*pack_rows_bf16)(const GemmAmxPanel<BF16Bits>&);
  void (*pack_columns_f32)(const GemmAmxPanel<float>&);
  void (*pack_columns_bf16)(const GemmAmxPanel<BF16Bits>&);
  // Copies `tiles` times 32 steps of one row, which lie side by side, into that row of so many
  // tiles; zeros where `from` is null.
  void (*place_row)(const BF16Bits* from, int64_t tiles, BF16Bits* row);
  // Multiplies tiles that stay in registers for so many rounds, to measure the peak; returns the
  // FLOPs done. `sink` receives one value, so that the work cannot be dropped.
  double (*multiply_in_registers)(int64_t rounds, float* sink);
};

namespace avx512 {
extern const GemmAmxKernels gemm_amx_kernels;
}

}  // namespace ridge::cpu
