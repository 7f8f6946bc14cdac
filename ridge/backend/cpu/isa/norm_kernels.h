// Layer and root-mean-square norm of one instruction set.
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
  bool streamed;  ///< y is stored past the caches.
};
/// Rows [begin, end).
using NormKernel = void (*)(const NormRows& rows, int64_t begin, int64_t end);

/// Float dtypes only.
struct RowNormKernels {
  NormKernel layer_norm[kElements];
  NormKernel rms_norm[kElements];
};

namespace avx2 {
extern const RowNormKernels row_norm_kernels;
}  // namespace avx2

namespace avx512 {
extern const RowNormKernels row_norm_kernels;
}  // namespace avx512

}  // namespace ridge::cpu
