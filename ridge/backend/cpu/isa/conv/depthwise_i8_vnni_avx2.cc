// Depthwise convolutions of bytes by AVX-VNNI: vpdpbusd in 256 bits.
#include "ridge/backend/cpu/isa/conv/depthwise_i8_tile.h"

namespace ridge::cpu {
namespace {

struct Quads256 : Quads<Bytes256> {
  static Reg dot(Reg sum, Reg x, Reg w) { return _mm256_dpbusd_avx_epi32(sum, x, w); }
};

}  // namespace

namespace avx2 {
const DepthwiseI8Kernels depthwise_i8_vnni_kernels = kDepthwiseI8<Quads256>;
}

}  // namespace ridge::cpu
