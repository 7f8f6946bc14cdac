// The 16-bit float types, and conversions between any two element types.
//
// Conversions: to a float type, round to nearest even, once; from a float to an integer, towards
// zero, saturating, NaN to 0; between integers, modulo 2^bits; to bool, `x != 0`.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "ridge/api/dtype.h"
#include "ridge/base/error.h"

namespace ridge {

inline constexpr DType kAllDTypes[] = {DType::kF64,
                                       DType::kF32,
                                       DType::kF16,
                                       DType::kBF16,
                                       DType::kI64,
                                       DType::kI32,
                                       DType::kI16,
                                       DType::kU16,
                                       DType::kU8,
                                       DType::kI8,
                                       DType::kBool};

constexpr bool is_float(DType d) { return d <= DType::kBF16; }
constexpr bool is_integer(DType d) { return d > DType::kBF16 && d != DType::kBool; }

/// The nearest f32 bits of IEEE 754 binary16, and back (round to nearest even, NaN stays NaN).
float f16_bits_to_float(uint16_t bits);
uint16_t float_to_f16_bits(float value);

/// IEEE 754 binary16.
struct F16 {
  static constexpr DType kDType = DType::kF16;
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value) : bits(float_to_f16_bits(value)) {}
  operator float() const { return f16_bits_to_float(bits); }
};

/// The upper half of an f32.
struct BF16 {
  static constexpr DType kDType = DType::kBF16;
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);  // a NaN must not round to infinity
    else
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <typename T>
struct TypeTag {
  using type = T;
};

/// Calls `body` with a TypeTag of the C++ type that stores `dtype` (bool is stored as `bool`).
template <typename F>
decltype(auto) dispatch(DType dtype, F&& body) {
  switch (dtype) {
    case DType::kF64:
      return body(TypeTag<double>{});
    case DType::kF32:
      return body(TypeTag<float>{});
    case DType::kF16:
      return body(TypeTag<F16>{});
    case DType::kBF16:
      return body(TypeTag<BF16>{});
    case DType::kI64:
      return body(TypeTag<int64_t>{});
    case DType::kI32:
      return body(TypeTag<int32_t>{});
    case DType::kI16:
      return body(TypeTag<int16_t>{});
    case DType::kU16:
      return body(TypeTag<uint16_t>{});
    case DType::kU8:
      return body(TypeTag<uint8_t>{});
    case DType::kI8:
      return body(TypeTag<int8_t>{});
    case DType::kBool:
      return body(TypeTag<bool>{});
  }
  throw InternalError("[dispatch] dtype out of range");
}

/// Does the same as dispatch, for float types only; anything else is an InternalError that names
/// `who`.
template <typename F>
decltype(auto) dispatch_float(DType dtype, std::string_view who, F&& body) {
  switch (dtype) {
    case DType::kF64:
      return body(TypeTag<double>{});
    case DType::kF32:
      return body(TypeTag<float>{});
    case DType::kF16:
      return body(TypeTag<F16>{});
    case DType::kBF16:
      return body(TypeTag<BF16>{});
    default:
      throw InternalError(fmt::format("[{}] no kernel for dtype {}", who, name_of(dtype)));
  }
}

template <typename T>
inline constexpr bool is_float_type =
    std::is_floating_point_v<T> || std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

/// A f32 that rounds to the same f16 or bf16 as `value` does (round to odd: Boldo and Melquiond,
/// "Emulation of FMA and correctly rounded sums", 2008).
float round_to_odd(double value);
/// A f64 that rounds to the same f32, f16 or bf16 as `value` does.
double round_to_odd(int64_t value);

/// `value` as a To, by the rules at the top of this file.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, F16> || std::is_same_v<From, BF16>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_same_v<To, F16> || std::is_same_v<To, BF16>) {
    if constexpr (std::is_same_v<From, double>)
      return To(round_to_odd(value));
    else if constexpr (std::is_same_v<From, float>)
      return To(value);
    else
      return convert<To>(round_to_odd(static_cast<int64_t>(value)));
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_floating_point_v<From>) {
    // 2^(bits-1) or 2^bits is exact in either float type, where max() itself may not be.
    constexpr int kDigits = std::numeric_limits<To>::digits;
    constexpr From kEnd = static_cast<From>(uint64_t{1} << (kDigits - 1)) * From{2};
    if (!(value == value)) return To{0};
    if (value >= kEnd) return std::numeric_limits<To>::max();
    if (value <= (std::is_signed_v<To> ? -kEnd : From{0})) return std::numeric_limits<To>::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace ridge
