// Dropout kernels of one instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

struct DropoutStream {
  uint64_t philox_key;  // of rng_philox_key
  uint64_t step;
  uint32_t threshold;  // an element is kept when the upper 24 bits of its word are at least this
  double keep;         // 1 - p, what kept elements are divided by
};

/// n elements, of which the first has the global index `first`. y may be x.
using DropoutKernel =
    void (*)(const DropoutStream& stream, uint64_t first, const void* x, void* y, int64_t n);

struct RandomKernels {
  DropoutKernel dropout[kElements];  // float dtypes only
};

namespace avx2 {
extern const RandomKernels random_kernels;
}
namespace avx512 {
extern const RandomKernels random_kernels;
}

}  // namespace ridge::cpu
