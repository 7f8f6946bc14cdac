// Batch norm and its gradient, of one instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// Steps over x (rows, channels) in chunks of rows; all pointers stay the same from step to step.
/// Where T is the dtype, A is what it is computed in.
struct BatchNormData {
  const void* x;
  const void* dy;  // for the gradient alone
  const void* gamma;
  const void* beta;
  void* result;  // y, or dx
  void* mean;    // written forward, read backward; the same for variance
  void* variance;
  void* dgamma;
  void* dbeta;
  int64_t rows;
  int64_t channels;
  int64_t chunk;  // rows whose sums are taken together
  double eps;
  bool wide_channels;   // gamma, beta, statistics and their gradients are f32, whatever T is
  double* chunk_first;  // (chunks, channels): means, or sums of dz
  double*
      chunk_second;  // the same: squared deviations, or sums of dz times the deviation from mean
  void* table;       // kNormTables rows of `channels` A
};

inline constexpr int kNormTables = 6;

/// Channels of one tile of the steps over chunks.
inline constexpr int64_t kNormColumns = 512;

/// A step over a range [begin, end) of: chunks * tiles of channels, tiles first (collect); tiles of
/// channels (combine); rows (write).
using BatchNormStep = void (*)(const BatchNormData& data, int64_t begin, int64_t end);

/// `prepare`, over channels, comes before all others; none is null.
struct BatchNormSteps {
  BatchNormStep prepare, collect, combine, write;
};

inline constexpr int kNormActivations = 3;  // none, relu, relu6

/// By dtype (floats only) and activation.
struct BatchNormKernels {
  BatchNormSteps forward[4][kNormActivations];
  BatchNormSteps backward[4][kNormActivations];
};

namespace avx2 {
extern const BatchNormKernels batch_norm_kernels;
}
namespace avx512 {
extern const BatchNormKernels batch_norm_kernels;
}

}  // namespace ridge::cpu
