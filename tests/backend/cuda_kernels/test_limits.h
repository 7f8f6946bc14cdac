// Limits of devices, as NVIDIA's tables of compute capabilities have them.
#pragma once

#include "ridge/backend/cuda/print/device_limits.h"

namespace ridge::test {

constexpr cuda::DeviceLimits limits_of(int major,
                                       int minor,
                                       int multiprocessors,
                                       int64_t kibibytes) {
  return {.major = major,
          .minor = minor,
          .multiprocessors = multiprocessors,
          .shared_per_block = (kibibytes - 1) << 10,
          .shared_per_multiprocessor = kibibytes << 10,
          .shared_reserved = 1 << 10};
}

inline constexpr cuda::DeviceLimits kA100 = limits_of(8, 0, 108, 164);
inline constexpr cuda::DeviceLimits kRtx3090 = limits_of(8, 6, 82, 100);
inline constexpr cuda::DeviceLimits kH200 =
    limits_of(9, 0, 132, 228);  // and of the stand-in for the driver
inline constexpr cuda::DeviceLimits kRtx5090 = limits_of(12, 0, 170, 100);

}  // namespace ridge::test
