// Depthwise convolutions of bytes by AVX2 alone.
#include "ridge/backend/cpu/isa/conv/depthwise_i8_tile.h"

namespace ridge::cpu::avx2 {
const DepthwiseI8Kernels depthwise_i8_kernels = kDepthwiseI8<Pairs256>;
}  // namespace ridge::cpu::avx2
