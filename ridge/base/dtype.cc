#include "ridge/base/dtype.h"

#include <cmath>

namespace ridge {
namespace {

struct DTypeRow {
  std::string_view name;
  size_t size;
};

// In the order of the enumeration.
constexpr DTypeRow kRows[] = {{"f64", 8},
                              {"f32", 4},
                              {"f16", 2},
                              {"bf16", 2},
                              {"i64", 8},
                              {"i32", 4},
                              {"i16", 2},
                              {"u16", 2},
                              {"u8", 1},
                              {"i8", 1},
                              {"bool", 1}};

}  // namespace

size_t size_of(DType dtype) { return kRows[static_cast<size_t>(dtype)].size; }

std::string_view name_of(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType dtype : kAllDTypes)
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

float f16_bits_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal, exact
  return sign ? -magnitude : magnitude;
}

uint16_t float_to_f16_bits(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14 one f16 step is 2^-24: adding 0.5 (whose last bit is 2^-24) rounds there.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

float round_to_odd(double value) {
  float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value || std::isinf(value))
    return nearest;
  // Truncate towards zero, then set the last bit, which says "inexact" to the next rounding.
  if (std::isinf(nearest) || std::fabs(static_cast<double>(nearest)) > std::fabs(value))
    nearest = std::nextafter(nearest, 0.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) | 1u);
}

double round_to_odd(int64_t value) {
  const bool negative = value < 0;
  uint64_t magnitude = negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  const int spare = 64 - std::countl_zero(magnitude) - 53;
  if (spare > 0) {
    const uint64_t mask = (uint64_t{1} << spare) - 1;
    if (magnitude & mask) magnitude = (magnitude & ~mask) | (uint64_t{1} << spare);
  }
  const double result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

}  // namespace ridge
