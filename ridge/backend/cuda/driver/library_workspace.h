// The workspace of a library's kernel, as it lies in a buffer of the engine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/base/alignment.h"

namespace ridge::cuda {

/// The alignment of the address at which cuBLASLt takes a workspace. On Hopper its kernels that
/// need one refuse any other address (CUBLAS_STATUS_INVALID_VALUE, seen with 13.1 on an H200).
inline constexpr size_t kLibraryWorkspaceAlignment = 256;

/// Bytes to reserve in a buffer, of kBufferAlignment, for a workspace of `bytes`; 0 for none.
constexpr size_t reserved_workspace_bytes(size_t bytes) {
  constexpr size_t kMostSkipped = kLibraryWorkspaceAlignment - size_t{kBufferAlignment};
  return bytes == 0 ? 0 : aligned_bytes(bytes) + kMostSkipped;
}

/// The aligned address of a workspace of `bytes` in what was reserved for it; null for none.
inline void* library_workspace(void* reserved, size_t bytes) {
  if (bytes == 0) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t skipped = (kLibraryWorkspaceAlignment - address % kLibraryWorkspaceAlignment) %
                            kLibraryWorkspaceAlignment;
  return static_cast<std::byte*>(reserved) + skipped;
}

}  // namespace ridge::cuda
