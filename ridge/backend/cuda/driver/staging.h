// Page-locked host memory, which copies read and write while the host goes on.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/backend/cuda/driver/stream.h"

namespace ridge::cuda {

class PinnedMemory {
 public:
  /// CudaError when the system has not that much to lock. `bytes` is at least 1.
  PinnedMemory(DeviceRef device, size_t bytes);
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_.get()), bytes_}; }

 private:
  Owned<void*> memory_;
  size_t bytes_;
};

/// Slots of page-locked memory that are used in turn. A slot is handed out again only when the
/// copies that were queued before its release have run. For one thread at a time.
class PinnedRing {
 public:
  /// At least one slot, of at least one byte.
  PinnedRing(DeviceRef device, size_t slots, size_t slot_bytes);

  struct Slot {
    size_t number;
    std::span<std::byte> bytes;
  };
  /// The next slot, for the host to write or for a copy to fill. Waits for its last copies where
  /// they still run. InternalError when it was not released.
  Slot acquire();
  /// The slot is free again when what is queued on `stream` so far has run.
  void release(const Slot& slot, Stream& stream);
  /// The slot is free again at once: no copy was queued.
  void release(const Slot& slot);

  /// How often acquire() had to wait: more slots, or fewer bytes, would have spared that.
  size_t waits() const { return waits_; }

 private:
  struct State {
    Event free;
    bool is_taken = false;
    bool has_work = false;  ///< `free` was recorded and not seen done.
  };
  State& taken(const Slot& slot);

  size_t slot_bytes_;
  PinnedMemory memory_;
  std::vector<State> slots_;
  size_t next_ = 0, waits_ = 0;
};

}  // namespace ridge::cuda
