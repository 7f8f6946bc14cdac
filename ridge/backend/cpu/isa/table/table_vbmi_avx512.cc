// Functions of a byte by vpermi2b, which looks 128 bytes up.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/table/table_kernels.h"

namespace ridge::cpu::avx512 {

void look_up_by_vbmi(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t n) {
  constexpr int64_t kBytes = 64;
  __m512i parts[kTableBytes / kBytes];
  for (int p = 0; p < kTableBytes / kBytes; ++p) parts[p] = _mm512_loadu_si512(table + kBytes * p);
  const auto found = [&](__m512i index) {
    const __m512i low = _mm512_permutex2var_epi8(parts[0], index, parts[1]);
    const __m512i high = _mm512_permutex2var_epi8(parts[2], index, parts[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high);
  };
  int64_t i = 0;
  for (; i + kBytes <= n; i += kBytes) _mm512_storeu_si512(y + i, found(_mm512_loadu_si512(x + i)));
  if (i == n) return;
  const __mmask64 rest = ~__mmask64{0} >> (kBytes - (n - i));
  _mm512_mask_storeu_epi8(y + i, rest, found(_mm512_maskz_loadu_epi8(rest, x + i)));
}

}  // namespace ridge::cpu::avx512
