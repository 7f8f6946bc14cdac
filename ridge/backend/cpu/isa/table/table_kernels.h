// Functions of a byte as tables.
#pragma once

#include <cstdint>

namespace ridge::cpu {

inline constexpr int kTableBytes = 256;

/// y[i] = table[x[i]] of kTableBytes bytes, for n bytes; y may be x.
using LookUpKernel = void (*)(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t n);

namespace avx2 {
void look_up(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t n);
}
namespace avx512 {
void look_up(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t n);
/// The same by AVX512-VBMI, which the machine must have.
void look_up_by_vbmi(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t n);
}  // namespace avx512

}  // namespace ridge::cpu
