// Rows of 16-bit floats: widening and adding, one set for each instruction set. The narrowing is
// among the GEMM kernels.
#pragma once

#include <cstdint>

#include "ridge/backend/cpu/isa/half_bits.h"

namespace ridge::cpu {

struct HalfKernels {
  // n contiguous elements: to = from.
  void (*widen_f16)(const F16Bits* from, float* to, int64_t n);
  void (*widen_bf16)(const BF16Bits* from, float* to, int64_t n);
  // n contiguous elements: to += from.
  void (*add_f16)(const F16Bits* from, float* to, int64_t n);
  void (*add_bf16)(const BF16Bits* from, float* to, int64_t n);
};

namespace avx2 {
extern const HalfKernels half_kernels;
}
namespace avx512 {
extern const HalfKernels half_kernels;
}

}  // namespace ridge::cpu
