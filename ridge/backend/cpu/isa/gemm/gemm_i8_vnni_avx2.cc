// Products of bytes by AVX-VNNI: vpdpbusd in 256 bits.
#include "ridge/backend/cpu/isa/gemm/gemm_i8_tile.h"

namespace ridge::cpu {
namespace {

struct Vnni256 {
  using Reg = __m256i;
  static constexpr int kWidth = 8;      // columns
  static constexpr int kProducts = 32;  // of an instruction
  static Reg zero() { return _mm256_setzero_si256(); }
  static Reg load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store(int32_t* p, Reg x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static Reg broadcast(const uint8_t* p) {
    return _mm256_set1_epi32(*reinterpret_cast<const int32_t __attribute__((may_alias))*>(p));
  }
  static Reg dot(Reg sum, Reg a, Reg b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
};

void block(const GemmI8Block& t) {
  for (int64_t panel = 0; panel < t.panels; ++panel)
    for_rows<6>(t.rows, VnniPart<Vnni256, 2>{t, 2 * panel});
}

}  // namespace

namespace avx2 {
const GemmI8Kernels gemm_i8_vnni_kernels = {
    nullptr, nullptr, block, run_dots<Vnni256>, false, false};
}

}  // namespace ridge::cpu
