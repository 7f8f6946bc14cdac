// Functions of a byte by vpshufb, which looks 16 bytes up: once for each of the 16 rows of a table.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/table/table_kernels.h"

namespace ridge::cpu::RIDGE_ISA {

void look_up(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t n) {
  constexpr int64_t kBytes = 32;
  constexpr int kRows = 16;
  __m256i rows[kRows];
  for (int r = 0; r < kRows; ++r)
    rows[r] = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + kRows * r)));
  // Plus 0x70 what is below 16 keeps its last four bits, and all else has the first bit, for which
  // vpshufb gives 0.
  const __m256i above = _mm256_set1_epi8(0x70), row = _mm256_set1_epi8(kRows);
  int64_t i = 0;
  for (; i + kBytes <= n; i += kBytes) {
    __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    __m256i found = _mm256_setzero_si256();
    for (int r = 0; r < kRows; ++r) {
      found = _mm256_or_si256(found, _mm256_shuffle_epi8(rows[r], _mm256_adds_epu8(index, above)));
      index = _mm256_sub_epi8(index, row);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), found);
  }
  for (; i < n; ++i) y[i] = table[x[i]];
}

}  // namespace ridge::cpu::RIDGE_ISA
