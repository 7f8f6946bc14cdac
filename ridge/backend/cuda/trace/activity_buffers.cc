#include "ridge/backend/cuda/trace/activity_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ridge::cuda {

void ActivityBuffers::reserve(size_t count) {
  const std::lock_guard lock(mutex_);
  auto free =
      static_cast<size_t>(std::count_if(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) {
        return buffer.state == State::kFree;
      }));
  for (; free < count; ++free) buffers_.push_back({.bytes = std::make_unique<uint8_t[]>(kBytes)});
}

uint8_t* ActivityBuffers::take() noexcept {
  const std::lock_guard lock(mutex_);
  for (Buffer& buffer : buffers_) {
    if (buffer.state != State::kFree) continue;
    buffer.state = State::kHandedOut;
    return buffer.bytes.get();
  }
  return nullptr;
}

void ActivityBuffers::give_back(uint8_t* bytes, size_t valid) noexcept {
  const std::lock_guard lock(mutex_);
  for (Buffer& buffer : buffers_) {
    if (buffer.bytes.get() != bytes || buffer.state != State::kHandedOut) continue;
    buffer.state = State::kBack;
    buffer.valid = std::min(valid, kBytes);
    buffer.order = ++order_;
  }
}

void ActivityBuffers::read(FunctionRef<void(std::span<uint8_t>)> use) {
  // Not under the lock: CUPTI may want a buffer meanwhile. Those that are back are ours alone.
  std::vector<std::pair<uint64_t, std::span<uint8_t>>> back;
  {
    const std::lock_guard lock(mutex_);
    for (Buffer& buffer : buffers_)
      if (buffer.state == State::kBack)
        back.emplace_back(buffer.order, std::span(buffer.bytes.get(), buffer.valid));
  }
  std::sort(
      back.begin(), back.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [order, bytes] : back) {
    use(bytes);
    std::memset(bytes.data(), 0, kBytes);
  }
  const std::lock_guard lock(mutex_);
  for (Buffer& buffer : buffers_)
    if (std::any_of(back.begin(), back.end(), [&](const auto& each) {
          return each.second.data() == buffer.bytes.get();
        }))
      buffer.state = State::kFree;
}

void ActivityBuffers::release() {
  const std::lock_guard lock(mutex_);
  std::erase_if(buffers_, [](const Buffer& buffer) { return buffer.state == State::kFree; });
}

size_t ActivityBuffers::handed_out() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) {
        return buffer.state == State::kHandedOut;
      }));
}

}  // namespace ridge::cuda
