// The two clocks: a steady one for durations, and the wall clock for dates in reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ridge {

/// Nanoseconds of CLOCK_MONOTONIC: never steps back, zero at an arbitrary time.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Nanoseconds since 1970-01-01 UTC; may step when the machine's clock is set.
inline int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Such a time as "2026-11-21T20:15:03Z".
std::string utc_time(int64_t wall_ns);

}  // namespace ridge
