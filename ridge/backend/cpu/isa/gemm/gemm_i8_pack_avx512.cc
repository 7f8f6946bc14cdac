// Packs rows of bytes for the products of gemm_i8_kernels.h by AVX-512: masks read what is left of
// a row, of which there is much where images have few channels.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu::avx512 {

void pack_i8_whole_rows(const GemmI8Lanes& x) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(x.flip));
  const int64_t whole = x.depth / kI8Steps, rest = x.depth % kI8Steps;
  const __mmask64 mask = (uint64_t{1} << rest) - 1;
  for (int64_t i = 0; i < kI8Lanes; ++i) {
    const uint8_t* from = x.from + i * x.lane_stride;
    uint8_t* to = x.to + i * kI8Steps;
    if (i >= x.lanes) {
      for (int64_t tile = 0; tile < whole + (rest > 0 ? 1 : 0); ++tile, to += x.to_tile)
        _mm512_storeu_si512(to, _mm512_setzero_si512());
      continue;
    }
    for (int64_t tile = 0; tile < whole; ++tile, from += kI8Steps, to += x.to_tile)
      _mm512_storeu_si512(to, _mm512_xor_si512(_mm512_loadu_si512(from), flip));
    if (rest > 0)
      _mm512_storeu_si512(
          to,
          _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, from), flip)));
  }
}

}  // namespace ridge::cpu::avx512
