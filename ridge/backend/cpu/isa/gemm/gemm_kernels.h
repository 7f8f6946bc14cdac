// The interface of a GEMM kernel file of one instruction set to the driver (gemm.cc).
//
// Operands come packed into panels, or as they lie in memory. An A panel holds `rows` rows of op(A)
// as [depth][rows], a B panel `cols` columns of op(B) as [depth][kernel cols], padded.
#pragma once

#include <cstdint>

#include "ridge/backend/cpu/isa/half_bits.h"

namespace ridge::cpu {

/// The lines that tiles fetch while they compute, some each: operands that will be packed next, so
/// that packing does not wait for memory.
struct GemmAhead {
  /// Rows that lie `stride` bytes apart.
  struct Rows {
    const char* at;
    int64_t bytes;
    int64_t stride;
    int64_t count;
  };
  Rows now, then;
  int64_t offset;  // bytes to the next line in the first row
  int64_t lines;   // for each tile, at least
};

/// One tile: C[rows, cols] = A * B (+ C when add); each element is one fma chain over depth from
/// zero, then at most one addition.
template <typename T>
struct GemmTile {
  int64_t depth;
  const T* a;      // element (i, p) at i * a_row + p * a_step
  int64_t a_row;   // 1 for a panel and for a transposed A
  int64_t a_step;  // rows of the tile for a panel
  const T* b;      // element (p, j) at p * b_step + j, whole vectors of j
  int64_t b_step;  // kernel cols for a panel
  T* c;            // element (i, j) at i * row_stride + j * col_stride
  int64_t row_stride;
  int64_t col_stride;
  int rows;  // 1 to the kernel's rows
  int cols;  // 1 to the kernel's cols
  bool add;
  T* copy;           // not null: B is also packed there; the tile has the kernel's cols then
  GemmAhead* ahead;  // may be null
};

/// Some steps of the chains of a thin product: they begin at zero, or go on from `sums`, and are
/// left there. Meanwhile two cache lines a step are fetched into the second-level cache.
template <typename T>
struct GemmThinTile {
  int64_t depth;
  const T* a;  // a panel of `rows`
  const T* b;  // laid out like GemmTile::b
  int64_t b_step;
  const T* ahead;  // for step p the lines at p * ahead_step
  int64_t ahead_step;
  T* sums;   // [rows][kernel cols]
  int rows;  // 1 to the kernel's rows
  bool resume;
};

/// One panel to pack: to[p * width + i] = from[i * lane_stride + p * depth_stride] for i < lanes;
/// any values for lanes <= i < width, whose products are dropped. One of the strides is 1.
template <typename In, typename T>
struct GemmPanel {
  const In* from;
  int64_t lane_stride;
  int64_t depth_stride;
  int64_t depth;
  int lanes;
  int width;
  T* to;
};

/// Whole chains of products of a few rows with columns that are contiguous along depth, transposed
/// in registers on the way.
template <typename T>
struct GemmDots {
  static constexpr int kLanes = 64 / sizeof(T);
  static constexpr int kRows = 4;
  int64_t depth;
  const T* a;  // a panel of `rows`
  int rows;    // 1 to kRows
  const T* b;  // element (p, j) at p + j * lane_stride
  int64_t lane_stride;
  int lanes;      // 1 to kLanes
  int64_t ahead;  // elements of every column this far ahead are fetched meanwhile
  T* sums;        // [rows][kLanes]; those beyond lanes are any values
};

/// One chain of some columns that are contiguous along depth, by rows that are packed as
/// [depth][width]: sums[j][i] = the sum over p of b[j][p] rows[p][i], plus the old sums when `add`.
/// `ahead` as in GemmDots.
template <typename T>
struct GemmStream {
  static constexpr int kColumns = 6;
  static constexpr int kHalf = 32 / sizeof(T);
  static constexpr int kWhole = 64 / sizeof(T);
  int64_t depth;
  const T* b;  // element (p, j) at p + j * column_stride
  int64_t column_stride;
  int columns;  // 1 to kColumns
  int64_t ahead;
  const T* rows;
  int width;  // kHalf or kWhole
  T* sums;    // [kColumns][width], those beyond `columns` are any values
  bool add;
};

template <typename In, typename T>
using PackGemmPanel = void (*)(const GemmPanel<In, T>&);

template <typename T>
struct GemmKernel {
  int rows;   // rows of the largest tile
  int cols;   // the same, and of a B panel
  int lanes;  // lanes of a vector
  void (*tile)(const GemmTile<T>&);
  void (*thin)(const GemmThinTile<T>&);
};

struct GemmKernels {
  const GemmKernel<float>* f32;
  const GemmKernel<double>* f64;
  PackGemmPanel<float, float> pack_f32;
  PackGemmPanel<double, double> pack_f64;
  PackGemmPanel<F16Bits, float> pack_f16;
  PackGemmPanel<BF16Bits, float> pack_bf16;
  PackGemmPanel<float, float> pack_rounded;  // to bf16
  PackGemmPanel<float, float> pack_rounded_to_f16;
  void (*dots_f32)(const GemmDots<float>&);
  void (*dots_f64)(const GemmDots<double>&);
  // n contiguous elements; narrowing rounds to nearest even as F16(float) and BF16(float) do.
  void (*narrow_f16)(const float* from, F16Bits* to, int64_t n);
  void (*narrow_bf16)(const float* from, BF16Bits* to, int64_t n);
};

struct GemmStreams {
  void (*f32)(const GemmStream<float>&);
  void (*f64)(const GemmStream<double>&);
};

/// Products of bf16 by vdpbf16ps, for machines that have it. A step of depth is a pair of steps of
/// the operands, and an element of a panel the bits of two bf16: floats to those who move them. The
/// panels to pack name steps of the operands; an odd last one is paired with zero.
struct GemmPairKernels {
  GemmKernel<float> kernel;  // without `thin`, and without `copy` in its tiles
  PackGemmPanel<float, float> pack_f32;
  PackGemmPanel<BF16Bits, float> pack_bf16;
};

namespace avx2 {
extern const GemmKernel<float> gemm_f32;
extern const GemmKernel<double> gemm_f64;
extern const GemmKernels gemm_kernels;
extern const GemmStreams gemm_stream_kernels;
}  // namespace avx2

namespace avx512 {
extern const GemmKernel<float> gemm_f32;
extern const GemmKernel<double> gemm_f64;
extern const GemmKernels gemm_kernels;
extern const GemmStreams gemm_stream_kernels;
extern const GemmPairKernels gemm_pair_kernels;
}  // namespace avx512

}  // namespace ridge::cpu
