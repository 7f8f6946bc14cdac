// Rounding to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008): what
// is rounded on to fewer bits afterwards comes out as if it had been rounded once.
#pragma once

#include <cstdint>

namespace ridge::cpu {
namespace {

// A f32 that rounds to the same f16 or bf16 as x does.
inline float round_odd(double x) {
  const float near = static_cast<float>(x);
  const double back = static_cast<double>(near);
  uint32_t bits = __builtin_bit_cast(uint32_t, near);
  // Truncated, then the lowest bit says that something was lost.
  bits -= __builtin_fabs(back) > __builtin_fabs(x) ? 1u : 0u;
  bits |= back != x ? 1u : 0u;
  return __builtin_bit_cast(float, bits);
}

// A f64 that rounds to the same f32, f16 or bf16 as x does.
inline double round_odd(int64_t x) {
  constexpr int64_t kExact = int64_t{1} << 53;
  const int64_t lost = x & 0x7ff;
  const int64_t high = x >> 11 | (lost != 0 ? 1 : 0);
  const bool is_exact = x > -kExact && x < kExact;
  return is_exact ? static_cast<double>(x) : static_cast<double>(high) * 2048.0;
}

}  // namespace
}  // namespace ridge::cpu
