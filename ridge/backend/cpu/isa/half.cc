// Rows of 16-bit floats, eight at a time.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/half_kernels.h"

namespace ridge::cpu {
namespace {

__m256 widen8(const F16Bits* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

__m256 widen8(const BF16Bits* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <typename Half, bool kAdd>
void rows(const Half* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = widen8(from + i);
    _mm256_storeu_ps(to + i, kAdd ? _mm256_add_ps(_mm256_loadu_ps(to + i), x) : x);
  }
  if (i == n) return;
  Half rest[8] = {};
  alignas(32) float wide[8];
  for (int64_t j = i; j < n; ++j) rest[j - i] = from[j];
  _mm256_store_ps(wide, widen8(rest));
  for (int64_t j = i; j < n; ++j) to[j] = kAdd ? to[j] + wide[j - i] : wide[j - i];
}

}  // namespace

namespace RIDGE_ISA {
const HalfKernels half_kernels = {
    rows<F16Bits, false>, rows<BF16Bits, false>, rows<F16Bits, true>, rows<BF16Bits, true>};
}

}  // namespace ridge::cpu
