#include "ridge/backend/cuda/driver/staging.h"

#include <limits>

namespace ridge::cuda {
namespace {

Owned<void*> lock_memory(DeviceRef device, size_t bytes) {
  check_internal(bytes > 0, "[cuda::PinnedMemory] no bytes are asked for");
  const Driver& driver = device->driver();
  void* memory = nullptr;
  driver.check(driver.mem_host_alloc(&memory, bytes, kHostAllocPortable),
               "{} bytes of page-locked host memory",
               bytes);
  return {std::move(device), memory, &Driver::mem_free_host, Owned<void*>::Before::kWaitForWork};
}

// Slots start at multiples of this, so that no two share a line of any cache.
constexpr size_t kAlignment = 256;

size_t padded(size_t slots, size_t bytes) {
  check_internal(
      slots > 0 && bytes > 0 && bytes <= std::numeric_limits<size_t>::max() / slots - kAlignment,
      "[cuda::PinnedRing] {} slots of {} bytes",
      slots,
      bytes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

PinnedMemory::PinnedMemory(DeviceRef device, size_t bytes)
    : memory_(lock_memory(std::move(device), bytes)), bytes_(bytes) {}

PinnedRing::PinnedRing(DeviceRef device, size_t slots, size_t slot_bytes)
    : slot_bytes_(slot_bytes), memory_(device, slots * padded(slots, slot_bytes)) {
  slots_.reserve(slots);
  for (size_t i = 0; i < slots; ++i) slots_.push_back({.free = Event(device)});
}

PinnedRing::Slot PinnedRing::acquire() {
  const size_t number = next_;
  State& state = slots_[number];
  check_internal(!state.is_taken, "[cuda::PinnedRing] slot {} was not released", number);
  if (state.has_work && !state.free.is_done()) {
    ++waits_;
    state.free.synchronize();
  }
  state.has_work = false;
  state.is_taken = true;
  next_ = (number + 1) % slots_.size();
  const size_t stride = memory_.bytes().size() / slots_.size();
  return {number, memory_.bytes().subspan(number * stride, slot_bytes_)};
}

PinnedRing::State& PinnedRing::taken(const Slot& slot) {
  check_internal(slot.number < slots_.size() && slots_[slot.number].is_taken,
                 "[cuda::PinnedRing] slot {} is not taken",
                 slot.number);
  return slots_[slot.number];
}

void PinnedRing::release(const Slot& slot, Stream& stream) {
  State& state = taken(slot);
  stream.record(state.free);
  state.has_work = true;
  state.is_taken = false;
}

void PinnedRing::release(const Slot& slot) { taken(slot).is_taken = false; }

}  // namespace ridge::cuda
