// The alignment of buffers and of what lies side by side in one.
#pragma once

#include <cstdint>

namespace ridge {

/// Offsets and sizes of buffers are multiples of it: a cache line, and what kernels ask for.
inline constexpr int64_t kBufferAlignment = 64;

/// `bytes` (int64_t or size_t) rounded up to the alignment.
template <typename T>
constexpr T aligned_bytes(T bytes) {
  constexpr T kAlignment = static_cast<T>(kBufferAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace ridge
