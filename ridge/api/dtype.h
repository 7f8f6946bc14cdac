// Element types by name, size and C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ridge {

/// kF16 is IEEE 754 binary16, kBF16 the upper half of an f32; kBool takes a byte, 0 or 1.
enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kU16, kU8, kI8, kBool };

/// Size of one element in bytes.
size_t size_of(DType dtype);
/// "f64", "f32", "f16", "bf16", "i64", ... "bool".
std::string_view name_of(DType dtype);
/// The inverse of name_of; nothing for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);

/// The DType that is stored as T; T::kDType where T is a class, such as a 16-bit float of yours.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::kF64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::kI64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::kI32;
  else if constexpr (std::is_same_v<T, int16_t>)
    return DType::kI16;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return DType::kU16;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::kU8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DType::kI8;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::kBool;
  else
    return T::kDType;
}

}  // namespace ridge
