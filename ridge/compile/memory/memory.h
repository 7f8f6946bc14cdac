// The memory planner: a pure function from lifetimes to offsets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/base/alignment.h"

namespace ridge {

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

/// Bytes in use at each step, from 0 to the last that a lifetime names.
std::vector<int64_t> live_by_step(std::span<const Lifetime> lifetimes);

/// The largest of live_by_step; 0 for no lifetimes.
int64_t largest_live_set(std::span<const Lifetime> lifetimes);

/// Whether `peak` is within a quarter of a per cent of `lower_bound`: not worth more planning.
constexpr bool is_close(int64_t peak, int64_t lower_bound) {
  return peak - lower_bound <= lower_bound / 400;
}

/// The best of several greedy layouts (by size, by time and size, by start) and, for few buffers,
/// of a search that proves it, each only as long as the lower bound is not reached; and of repairs
/// of those, as long as it is not close. A function of its arguments alone, in milliseconds for
/// thousands of buffers. With `reuse` off every buffer gets bytes of its own.
Layout lay_out(std::span<const Lifetime> lifetimes, bool reuse = true);

/// The least layout of at most 64 buffers (InternalError) that needs less than `below` bytes, by
/// branch and bound; no offsets when there is none. After trying `nodes` places it gives the best
/// until then.
Layout search_layout(std::span<const Lifetime> lifetimes, int64_t below, int64_t nodes);

}  // namespace ridge
