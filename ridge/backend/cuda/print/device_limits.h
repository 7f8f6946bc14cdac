// The resources of a device that bound a kernel. Printers and planners cut their kernels by them;
// no bits depend on them.
#pragma once

#include <cstdint>

namespace ridge::cuda {

struct DeviceLimits {
  int major = 0, minor = 0;  ///< The compute capability.
  int multiprocessors = 0;
  int64_t shared_per_block = 0;  ///< Bytes, static and dynamic, of a kernel that asks for them.
  int64_t shared_per_multiprocessor = 0;
  int64_t shared_reserved = 0;  ///< Bytes that the driver adds to those of each block.

  /// Shared memory of each of so many blocks that run on a multiprocessor at a time.
  int64_t shared_of_blocks(int64_t blocks) const {
    const int64_t share = shared_per_multiprocessor / blocks - shared_reserved;
    return share < shared_per_block ? share : shared_per_block;
  }
};

}  // namespace ridge::cuda
