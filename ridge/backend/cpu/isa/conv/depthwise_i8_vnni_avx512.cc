// Depthwise convolutions of bytes by AVX512-VNNI: vpdpbusd in 512 bits, and in 256 for few
// channels.
#include "ridge/backend/cpu/isa/conv/depthwise_i8_tile.h"

namespace ridge::cpu {
namespace {

struct Bytes512 {
  using Reg = __m512i;
  using Floats = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kPixels = 4;
  static Reg zero() { return _mm512_setzero_si512(); }
  static Reg load(const void* p) { return _mm512_loadu_si512(p); }
  static void store(void* p, Reg x) { _mm512_storeu_si512(p, x); }
  static Reg bytes(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static Reg numbers(int32_t x) { return _mm512_set1_epi32(x); }
  static Reg flipped(Reg x, Reg flip) { return _mm512_xor_si512(x, flip); }
  static Reg low8(Reg a, Reg b) { return _mm512_unpacklo_epi8(a, b); }
  static Reg high8(Reg a, Reg b) { return _mm512_unpackhi_epi8(a, b); }
  static Reg low16(Reg a, Reg b) { return _mm512_unpacklo_epi16(a, b); }
  static Reg high16(Reg a, Reg b) { return _mm512_unpackhi_epi16(a, b); }
  static Reg plus(Reg a, Reg b) { return _mm512_add_epi32(a, b); }
  static Reg minus(Reg a, Reg b) { return _mm512_sub_epi32(a, b); }
  static Reg times(Reg a, Reg b) { return _mm512_mullo_epi32(a, b); }
  static Floats floats(const void* p) { return _mm512_loadu_ps(p); }
  static void store(void* p, Floats x) { _mm512_storeu_ps(p, x); }
  static Floats all(float x) { return _mm512_set1_ps(x); }
  static Floats scaled(Reg sum, Floats scale, Floats bias) {
    return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), bias);
  }
  // NaN becomes 0 behind the zero point.
  static Reg rounded(Floats x, Floats least, Floats most, Reg zero) {
    const __mmask16 is_number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    const Floats inside = _mm512_min_ps(_mm512_max_ps(x, least), most);
    return _mm512_maskz_add_epi32(is_number, _mm512_cvtps_epi32(inside), zero);
  }
  static Reg packed(const Reg (&x)[kParts], bool is_signed) {
    const Reg low = _mm512_packs_epi32(x[0], x[1]), high = _mm512_packs_epi32(x[2], x[3]);
    return is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
  }
  struct Limits {
    Reg zero, low, high;
    bool are_signed;
  };
  static Reg packed_plain(const Floats (&x)[kParts], const Limits& limits) {
    const Reg low = _mm512_packs_epi32(_mm512_cvtps_epi32(x[0]), _mm512_cvtps_epi32(x[1]));
    const Reg high = _mm512_packs_epi32(_mm512_cvtps_epi32(x[2]), _mm512_cvtps_epi32(x[3]));
    const Reg a = _mm512_adds_epi16(low, limits.zero), b = _mm512_adds_epi16(high, limits.zero);
    if (limits.are_signed)
      return _mm512_min_epi8(_mm512_max_epi8(_mm512_packs_epi16(a, b), limits.low), limits.high);
    return _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(a, b), limits.low), limits.high);
  }
  static Reg pairs(int32_t x) { return _mm512_set1_epi16(static_cast<int16_t>(x)); }
};

struct Quads512 : Quads<Bytes512> {
  static Reg dot(Reg sum, Reg x, Reg w) { return _mm512_dpbusd_epi32(sum, x, w); }
};

// There are 32 registers.
struct Quads256 : Quads<Bytes256> {
  static constexpr int kPixels = 4;
  static Reg dot(Reg sum, Reg x, Reg w) { return _mm256_dpbusd_epi32(sum, x, w); }
};

}  // namespace

namespace avx512 {
const DepthwiseI8Kernels depthwise_i8_vnni_kernels = kDepthwiseI8<Quads512>;
const DepthwiseI8Kernels depthwise_i8_vnni_narrow_kernels = kDepthwiseI8<Quads256>;
}  // namespace avx512

}  // namespace ridge::cpu
