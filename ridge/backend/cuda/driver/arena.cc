#include "ridge/backend/cuda/driver/arena.h"

namespace ridge::cuda {
namespace {

Owned<DevicePointer> allocate(DeviceRef device, size_t bytes) {
  check_internal(bytes > 0, "[cuda::Arena] no bytes are asked for");
  const Driver& driver = device->driver();
  DevicePointer memory = 0;
  const Status status = driver.mem_alloc(&memory, bytes);
  if (status.result == Result::kOutOfMemory) {
    size_t free = 0, total = 0;
    if (driver.mem_get_info(&free, &total).ok())
      driver.check(status, "{} bytes; {} of {} bytes are free", bytes, free, total);
  }
  driver.check(status, "{} bytes", bytes);
  return {std::move(device), memory, &Driver::mem_free, Owned<DevicePointer>::Before::kWaitForWork};
}

}  // namespace

Arena::Arena(DeviceRef device, size_t bytes)
    : memory_(allocate(std::move(device), bytes)), bytes_(bytes) {}

DevicePointer Arena::at(size_t offset, size_t bytes) const {
  check_internal(offset <= bytes_ && bytes <= bytes_ - offset,
                 "[cuda::Arena] {} bytes at {} are not in an arena of {}",
                 bytes,
                 offset,
                 bytes_);
  return memory_.get() + offset;
}

}  // namespace ridge::cuda
