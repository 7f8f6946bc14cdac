// The device memory of a plan: one allocation, of which the plan's offsets are parts.
#pragma once

#include <cstddef>

#include "ridge/backend/cuda/driver/device.h"

namespace ridge::cuda {

class Arena {
 public:
  /// CudaError with Trouble::kOutOfMemory when the device has not that much; the error says how
  /// much is free. `bytes` is at least 1.
  Arena(DeviceRef device, size_t bytes);

  size_t bytes() const { return bytes_; }
  /// The address of `bytes` from `offset` on; InternalError when they are not all inside.
  DevicePointer at(size_t offset, size_t bytes) const;

 private:
  Owned<DevicePointer> memory_;
  size_t bytes_;
};

}  // namespace ridge::cuda
