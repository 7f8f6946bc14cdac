// Products of bytes by AVX512-VNNI: vpdpbusd in 512 bits.
#include "ridge/backend/cpu/isa/gemm/gemm_i8_tile.h"

namespace ridge::cpu {
namespace {

struct Vnni512 {
  using Reg = __m512i;
  static constexpr int kWidth = 16;     // columns
  static constexpr int kProducts = 64;  // of an instruction
  static Reg zero() { return _mm512_setzero_si512(); }
  static Reg load(const void* p) { return _mm512_loadu_si512(p); }
  static void store(int32_t* p, Reg x) { _mm512_storeu_si512(p, x); }
  static Reg broadcast(const uint8_t* p) {
    return _mm512_set1_epi32(*reinterpret_cast<const int32_t __attribute__((may_alias))*>(p));
  }
  static Reg dot(Reg sum, Reg a, Reg b) { return _mm512_dpbusd_epi32(sum, a, b); }
};

void block(const GemmI8Block& t) {
  switch (t.panels) {
    case 1:
      return for_rows<6>(t.rows, VnniPart<Vnni512, 1>{t, 0});
    case 2:
      return for_rows<6>(t.rows, VnniPart<Vnni512, 2>{t, 0});
    case 3:
      return for_rows<6>(t.rows, VnniPart<Vnni512, 3>{t, 0});
    default:
      return for_rows<6>(t.rows, VnniPart<Vnni512, 4>{t, 0});
  }
}

}  // namespace

namespace avx512 {
const GemmI8Kernels gemm_i8_vnni_kernels = {
    nullptr, nullptr, block, run_dots<Vnni512>, false, false};
}

}  // namespace ridge::cpu
