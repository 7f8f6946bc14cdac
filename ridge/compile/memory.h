// The memory planner: a pure function from lifetimes to offsets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

/// Offsets and sizes of buffers are multiples of it: a cache line, and what kernels ask for.
inline constexpr int64_t kBufferAlignment = 64;

/// `bytes` rounded up to the alignment.
constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

/// A buffer that is needed from step `begin` to step `end`, both included.
struct Lifetime {
  int64_t bytes = 0;
  int begin = 0;
  int end = 0;
};

struct Layout {
  std::vector<int64_t> offsets;  ///< One a lifetime.
  int64_t peak = 0;              ///< Bytes that the layout needs.
  int64_t lower_bound = 0;       ///< Bytes of the largest live set: no layout needs less.
};

/// Places the buffers largest first, each in the smallest gap that fits it among those already
/// placed whose lifetimes meet its own. With `reuse` off every buffer gets bytes of its own.
Layout lay_out(std::span<const Lifetime> lifetimes, bool reuse = true);

}  // namespace ridge
