// Elements of foreign files brought into the form that tensors have in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "ridge/base/tensor.h"

namespace ridge {

static_assert(std::endian::native == std::endian::little, "file formats are read as they lie");

/// The unsigned integer of sizeof(T) bytes at `bytes`, in the order of bytes that the name says.
template <typename T>
T load_little_endian(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}
template <typename T>
T load_big_endian(const std::byte* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>((value << 8) | std::to_integer<T>(bytes[i]));
  return value;
}

/// Reverses the bytes of each element of `element_size` bytes.
void swap_bytes(std::span<std::byte> data, size_t element_size);

/// UserError that opens with `where` unless each of the bytes is 0 or 1: another value in memory
/// that holds `bool` is undefined behaviour. Nothing is checked for other dtypes.
void check_bools(DType dtype, std::span<const std::byte> data, std::string_view where);

}  // namespace ridge
