// Layer, root-mean-square and batch norm of one instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// x and y are (rows, n), gamma and beta (n); a norm without a shift has no beta. y may be x.
struct NormRows {
  const void* x;
  const void* gamma;
  const void* beta;
  void* y;
  int64_t n;
  double eps;
};
/// Rows [begin, end).
using NormKernel = void (*)(const NormRows& rows, int64_t begin, int64_t end);

/// Batch norm of x (rows, channels) in three steps; all pointers stay the same.
struct BatchNormData {
  const void* x;
  const void* gamma;
  const void* beta;
  void* y;
  void* mean;
  void* variance;
  int64_t rows;
  int64_t channels;
  int64_t chunk;  // rows whose statistics are taken together
  double eps;
  double* chunk_means;    // (chunks, channels)
  double* chunk_squares;  // (chunks, channels): sums of squared deviations
  // (4, channels), of f64 for f64 and else f32: the mean in two parts, what a deviation from it is
  // multiplied by, and the shift.
  void* scaling;
};

/// Channels of one tile of the first two steps.
inline constexpr int64_t kNormColumns = 512;

/// Steps of batch norm over a range [begin, end) of: chunks * tiles of channels, tiles first; tiles
/// of channels; rows.
using BatchNormKernel = void (*)(const BatchNormData& data, int64_t begin, int64_t end);

/// Float dtypes only.
struct RowNormKernels {
  NormKernel layer_norm[kElements];
  NormKernel rms_norm[kElements];
};
struct BatchNormKernels {
  BatchNormKernel chunk_statistics[kElements];
  BatchNormKernel statistics[kElements];
  BatchNormKernel normalize[kElements];
};

namespace avx2 {
extern const RowNormKernels row_norm_kernels;
extern const BatchNormKernels batch_norm_kernels;
}  // namespace avx2

namespace avx512 {
extern const RowNormKernels row_norm_kernels;
extern const BatchNormKernels batch_norm_kernels;
}  // namespace avx512

}  // namespace ridge::cpu
