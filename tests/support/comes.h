// Waiting for an event that a busy machine may delay.
#pragma once

#include <chrono>
#include <thread>

namespace ridge::test {

/// Returns true as soon as `condition` holds. A minute without it is a hang, and then false is
/// returned.
template <typename Condition>
bool comes(Condition&& condition) {
  using Clock = std::chrono::steady_clock;
  for (const auto until = Clock::now() + std::chrono::minutes(1); Clock::now() < until;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace ridge::test
