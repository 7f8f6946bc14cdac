// The memory that CUPTI writes its records into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ridge/base/function_ref.h"

namespace ridge::cuda {

/// Buffers of one size, made before a recording: handing one out and taking it back allocates
/// nothing. Safe to use from several threads; CUPTI has threads of its own.
class ActivityBuffers {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;

  /// Makes buffers until `count` are free.
  void reserve(size_t count);
  /// A buffer of kBytes zeroes, for CUPTI to fill; null when none is free.
  uint8_t* take() noexcept;
  /// Takes back a buffer with records in its first `valid` bytes. An address that was not handed
  /// out is ignored.
  void give_back(uint8_t* buffer, size_t valid) noexcept;
  /// Calls `use` for each that came back, in that order, and frees them for use again.
  void read(FunctionRef<void(std::span<uint8_t>)> use);
  /// Returns the memory of those that are free.
  void release();

  /// How many CUPTI holds now.
  size_t handed_out() const;

 private:
  enum class State : uint8_t { kFree, kHandedOut, kBack };
  struct Buffer {
    std::unique_ptr<uint8_t[]> bytes;
    State state = State::kFree;
    size_t valid = 0;
    uint64_t order = 0;  ///< Order in which buffers came back.
  };

  mutable std::mutex mutex_;
  std::vector<Buffer> buffers_;
  uint64_t order_ = 0;
};

}  // namespace ridge::cuda
