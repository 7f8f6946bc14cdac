// Dropout kernels of one instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

struct DropoutStream {
  uint64_t philox_key;  // result of rng_philox_key
  uint64_t step;
  uint64_t first;      // global index of the tensor's element 0
  uint32_t threshold;  // an element is kept when the upper 24 bits of its word are at least this
  double scale;        // factor of kept elements; rounded to f32 but for f64
};

/// n elements, of which the first is the tensor's element `begin`. y may be x.
using DropoutKernel =
    void (*)(const DropoutStream& stream, uint64_t begin, const void* x, void* y, int64_t n);

struct RandomKernels {
  DropoutKernel dropout[kElements];  // float dtypes only
  /// The upper 24 bits of the words of n elements, the first of which is element `begin`.
  void (*numbers)(const DropoutStream& stream, uint64_t begin, int32_t* y, int64_t n);
};

namespace avx2 {
extern const RandomKernels random_kernels;
}
namespace avx512 {
extern const RandomKernels random_kernels;
}

}  // namespace ridge::cpu
