// The CPU, whose memory is counted, and fails when a test says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "tests/support/list_backend.h"

namespace ridge::test {

class ShortOfMemory final : public ListBackend {
 public:
  void* allocate(size_t size) override {
    const int call = calls_++;
    if (left-- == 0 || (fails_every > 0 && call % fails_every == fails_every - 1) || size > most)
      throw OutOfMemory("no memory today");
    void* const memory = ListBackend::allocate(size);
    const std::lock_guard lock(mutex_);
    sizes_[memory] = size;
    bytes_ += size;
    return memory;
  }
  void deallocate(void* memory) noexcept override {
    if (memory != nullptr) {
      const std::lock_guard lock(mutex_);
      bytes_ -= sizes_[memory];
      sizes_.erase(memory);
    }
    ListBackend::deallocate(memory);
  }

  /// Bytes that were taken and not given back.
  int64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(bytes_);
  }

  std::atomic<int> left = -1;           ///< Calls until one fails; below 0: none does.
  std::atomic<int> fails_every = 0;     ///< Each call of that number fails; 0: none.
  std::atomic<size_t> most = SIZE_MAX;  ///< A call for more bytes fails.

 private:
  std::atomic<int> calls_ = 0;
  mutable std::mutex mutex_;
  std::map<void*, size_t> sizes_;
  size_t bytes_ = 0;
};

}  // namespace ridge::test
