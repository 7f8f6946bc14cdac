// Hands out pieces of a workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/base/alignment.h"

namespace ridge::cpu {

/// Pieces of one block of memory, in order, each 64-byte aligned where the block is. With a null
/// block it only counts, so that the same code says how much is needed.
class Workspace {
 public:
  explicit Workspace(void* block) : block_(static_cast<char*>(block)) {}

  template <typename T>
  T* take(int64_t elements) {
    T* piece = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + used_);
    used_ += aligned_bytes(static_cast<size_t>(elements) * sizeof(T));
    return piece;
  }
  size_t used() const { return used_; }

 private:
  char* block_;
  size_t used_ = 0;
};

}  // namespace ridge::cpu
