// The interface of the kernels of products of bytes to their driver (gemm_i8.cc).
//
// Kernels multiply u8 by i8. Packing makes u8 of an op(A) of i8, and i8 of an op(B) of u8, by
// flipping the highest bit, which adds or takes 128; the driver moves the zero points likewise.
//
// A tile holds 64 steps of depth. Of op(A) it is (rows, 64 steps); of op(B), (16 quads of steps, 16
// columns, 4 steps). A panel of op(B) is the tiles of 16 columns one after another. All of it is
// padded with zeros, after the flip.
#pragma once

#include <cstdint>

#include "ridge/backend/cpu/isa/gemm/gemm_i8_windows.h"

namespace ridge::cpu {

inline constexpr int64_t kI8Lanes = 16;  ///< Columns of a panel; rows that are packed at a time.
inline constexpr int64_t kI8Steps = 64;  ///< Steps of depth of a tile.
inline constexpr int64_t kI8Tile = kI8Lanes * kI8Steps;
inline constexpr int64_t kI8Panels = 4;    ///< Most panels of a block.
inline constexpr int64_t kI8Rows = 128;    ///< Most rows of a block.
inline constexpr int64_t kI8Chain = 1024;  ///< Most steps of depth of a block.
/// Most bytes of op(A) that a task packs at a time: of 64 rows, the deepest product of a ResNet's.
inline constexpr int64_t kI8NearBytes = 288 * 1024;

struct GemmI8Results;
/// Makes rows [first, last) of the results; `sums` are those of row `first`, and may be
/// overwritten.
using GiveI8Results = void (*)(const GemmI8Results&, int32_t* sums, int64_t first, int64_t last);

/// Sums of products modulo 2^32, (rows, panels * 16), over so many steps of depth.
struct GemmI8Block {
  int64_t steps;     // 1 to kI8Chain
  const uint8_t* a;  // the first row of the first tile; packed, it has rows up to a multiple of 16
  int64_t a_tile;    // bytes from a tile to the next
  int64_t a_row;     // bytes from a row to the next: kI8Steps, unless a kernel `reads_rows`
  // Not null: rows behind the last multiple of 16 are here, packed, as tiles one after another.
  const uint8_t* a_rest;
  bool a_is_signed;  // op(A) is of i8: only where a kernel `reads_rows`
  const int8_t* b;   // the first tile of the first panel
  int64_t b_panel;   // bytes from a panel to the next
  int32_t* c;        // has rows up to the next multiple of 16, which may be written, too
  int64_t c_row;     // elements from a row to the next
  int64_t c_rows;    // behind so many rows, a multiple of 32, C begins again
  int64_t rows;      // 1 to kI8Rows
  int64_t panels;    // 1 to kI8Panels
  bool add;          // sums go on from those in C, else from zero
  // The panels of the next block, which lie as far apart, to be fetched meanwhile; may be null.
  const int8_t* next;
  int64_t next_bytes;   // of each of them
  int64_t next_panels;  // 1 to kI8Panels
  // Not null: sums are final, and a kernel that `gives_results` makes these of them. For others C
  // has all rows.
  const GemmI8Results* results;
  GiveI8Results give;
};

struct GemmI8Kernels {
  // A thread calls begin() before its first block, and end() behind its last one; may be null.
  void (*begin)();
  void (*end)();
  void (*block)(const GemmI8Block&);
  // Runs the instructions of block() on registers for so many rounds, to measure the peak; returns
  // the operations done, two for a product. `sink` receives one value, so that the work cannot be
  // dropped.
  double (*multiply_in_registers)(int64_t rounds, int32_t* sink);
  // It makes results of sums between the products of the rows behind them, as tiles multiply by
  // themselves.
  bool gives_results;
  // Rows of op(A) of whole tiles may be where they lie, of i8 or u8, without their sums.
  bool reads_rows;
};

/// Up to 16 lanes (rows of op(A) or columns of op(B)) to pack: element (i, p) lies at
/// from[i * lane_stride + p * depth_stride], i < lanes, p < depth; one of the strides is 1.
struct GemmI8Lanes {
  const uint8_t* from;
  int64_t lane_stride;
  int64_t depth_stride;
  int64_t depth;
  int lanes;        // 1 to 16
  uint8_t flip;     // bits to flip: 0 or 0x80
  uint8_t* to;      // aligned to 64 bytes
  int64_t to_tile;  // bytes from a tile to the next
  int32_t* sums;    // sums of the packed lanes are added to these 16; may be null
};

/// The results to make of the sums of a block: the arithmetic of gemm_i8.h. Arrays of columns have
/// elements up to a multiple of kI8Panels * kI8Lanes.
struct GemmI8Results {
  int64_t sums_row;  // elements from a row of sums to the next
  int64_t rows, columns;
  const int32_t* column_terms;  // to take from the sums of each row
  const int32_t* row_zeros;     // null, or factors of column_sums to take from the sums besides
  const int32_t* column_sums;
  const int32_t* row_terms;  // null, or factors of column_zeros to take from the sums besides
  const int32_t* column_zeros;
  const float* row_scales;  // null: 1
  const float* column_scales;
  const float* bias;  // -0: none
  int32_t zero;       // of the results of i8 and u8
  int32_t low, high;  // limits of those, within their type
  void* to;
  int64_t to_row;  // elements from a row to the next
};

/// Makes the results of a dtype, for all forms of the product.
struct GemmI8ResultKernels {
  GiveI8Results to_i32, to_f32, to_i8, to_u8;
  // The same where there are no row_zeros, row_terms and row_scales, and numbers are within 2^30
  // whatever the sums are; may be null.
  GiveI8Results plain_to_i8, plain_to_u8;
};

namespace avx2 {
extern const GemmI8Kernels gemm_i8_kernels;       // vpmaddwd of bytes widened to 16 bits: exact
extern const GemmI8Kernels gemm_i8_vnni_kernels;  // vpdpbusd in 256 bits
extern const GemmI8ResultKernels gemm_i8_result_kernels;
void pack_i8_rows(const GemmI8Lanes&);
void pack_i8_columns(const GemmI8Lanes&);
/// The same as pack_i8_rows() of `lanes.lanes` windows from the row `row` of the operand on, and of
/// its steps from `step` on, a multiple of kI8Chain; where they lie in `lanes` is not read.
void pack_i8_windows(const GemmI8Windows&, int64_t row, int64_t step, const GemmI8Lanes& lanes);
}  // namespace avx2
namespace avx512 {
extern const GemmI8Kernels gemm_i8_vnni_kernels;  // vpdpbusd in 512 bits
extern const GemmI8Kernels gemm_i8_amx_kernels;   // tdpbusd
extern const GemmI8ResultKernels gemm_i8_result_kernels;
/// The same as avx2::pack_i8_rows() of rows whose steps lie side by side, without sums.
void pack_i8_whole_rows(const GemmI8Lanes&);
}  // namespace avx512

}  // namespace ridge::cpu
