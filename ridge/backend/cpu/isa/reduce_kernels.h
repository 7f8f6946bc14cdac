// Reduction kernels of one instruction set.
//
// A reduction is a chain of stages; each takes x (outer, n, inner), reduces chunks of the middle
// axis and gives y (outer, chunks, inner) with chunks = ceil(n / chunk). The sums of 16-bit floats
// stay in f32 from one stage to the next.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

struct ReduceStage {
  int64_t n;
  int64_t chunk;  // elements of the middle axis that become one
  int64_t inner;
  double divisor;  // divides every result: 1, or for a mean the number of all elements
};

/// Columns (of the inner axis) of one tile. A tile is what one group of chunk elements gives for
/// that many columns; tiles are counted columns first, then chunks, then outer.
inline constexpr int64_t kReduceColumns = 512;

/// Reduces the tiles [begin, end).
using ReduceKernel =
    void (*)(const ReduceStage& stage, const void* x, void* y, int64_t begin, int64_t end);

/// Index of the largest element along the middle axis of x (outer, n, inner), the first of equals;
/// a NaN is larger than any number. For the outer positions [begin, end).
using ArgMaxKernel =
    void (*)(const void* x, int64_t* y, int64_t n, int64_t inner, int64_t begin, int64_t end);

/// y (outer, inner) = the sums, modulo 2^32, over the middle axis of bytes x (outer, n, inner), for
/// the outer positions [begin, end).
template <typename T>
using SumBytesKernel =
    void (*)(const T* x, int32_t* y, int64_t n, int64_t inner, int64_t begin, int64_t end);

/// Adds n rows of x, `columns` wide each, to `sum`, one after the other: call after call gives the
/// sum of a chunk as a stage does, where `sum` starts at zero.
using AddRowsKernel = void (*)(const void* x, int64_t n, int64_t columns, void* sum);

/// Whether what a stage reads and writes is of the dtype, or the f32 of 16-bit floats.
struct ReduceKernels {
  ReduceKernel sum[2][2][kElements];  // [x is f32][y is f32]
  ReduceKernel max[kElements];
  ArgMaxKernel argmax[kElements];
  AddRowsKernel add_rows[2];  // for f64 and f32
  SumBytesKernel<int8_t> sum_i8;
  SumBytesKernel<uint8_t> sum_u8;
};

namespace avx2 {
extern const ReduceKernels reduce_kernels;
}
namespace avx512 {
extern const ReduceKernels reduce_kernels;
}

}  // namespace ridge::cpu
