#include "ridge/backend/cuda/driver/host_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ridge::cuda {
namespace {

// A copy of this size runs at the speed of the bus, and so many may be on their way: a step writes
// a few inputs, and the host should be able to be a step ahead.
constexpr size_t kSlotBytes = size_t{1} << 20;
constexpr size_t kSlotsUp = 16, kSlotsDown = 8;

}  // namespace

HostCopies::Down::Down(const DeviceRef& device) : memory(device, kSlotsDown * kSlotBytes) {
  for (size_t i = 0; i < kSlotsDown; ++i) pieces.push_back({.copied = Event(device)});
}

std::byte* HostCopies::Down::slot(size_t number) const {
  return memory.bytes().subspan(number * kSlotBytes, kSlotBytes).data();
}

void HostCopies::to_device(Stream& stream, DevicePointer to, const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!up_) up_.emplace(device_, kSlotsUp, kSlotBytes);
  const auto* const source = static_cast<const std::byte*>(from);
  for (size_t at = 0; at < bytes; at += kSlotBytes) {
    const size_t piece = std::min(kSlotBytes, bytes - at);
    const PinnedRing::Slot slot = up_->acquire();
    try {
      std::memcpy(slot.bytes.data(), source + at, piece);
      stream.copy_to_device(to + at, slot.bytes.data(), piece);
      up_->release(slot, stream);
    } catch (...) {
      up_->release(slot);
      throw;
    }
  }
}

// The piece is where it was asked for, and its slot is free.
void HostCopies::finish(Down& down, size_t number) {
  Piece& piece = down.pieces[number];
  if (piece.has_work && !piece.copied.is_done()) piece.copied.synchronize();
  piece.has_work = false;
  if (std::exchange(piece.stream, nullptr) != nullptr)
    std::memcpy(piece.to, down.slot(number), piece.bytes);
}

void HostCopies::to_host(Stream& stream, void* to, DevicePointer from, size_t bytes) try {
  const std::lock_guard lock(mutex_);
  if (!down_) down_.emplace(device_);
  for (size_t at = 0; at < bytes; at += kSlotBytes) {
    const size_t number = down_->next;
    down_->next = (number + 1) % kSlotsDown;
    finish(*down_, number);  // this slot was used longest ago
    Piece& piece = down_->pieces[number];
    const size_t count = std::min(kSlotBytes, bytes - at);
    stream.copy_to_host(down_->slot(number), from + at, count);
    stream.record(piece.copied);
    piece.has_work = true;
    piece.stream = &stream;
    piece.to = static_cast<std::byte*>(to) + at;
    piece.bytes = count;
  }
} catch (...) {
  // Who reads several things gives up all of them, and their memory with that.
  drop(stream);
  throw;
}

void HostCopies::hand_over(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (!down_) return;
  // In the order of the copies: the same memory may have been asked for twice.
  for (size_t i = 0; i < kSlotsDown; ++i) {
    const size_t number = (down_->next + i) % kSlotsDown;
    Piece& piece = down_->pieces[number];
    if (piece.stream != &stream) continue;
    piece.has_work = false;
    piece.stream = nullptr;
    std::memcpy(piece.to, down_->slot(number), piece.bytes);
  }
}

void HostCopies::drop(const Stream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (!down_) return;
  for (Piece& piece : down_->pieces)
    if (piece.stream == &stream) piece.stream = nullptr;
}

}  // namespace ridge::cuda
