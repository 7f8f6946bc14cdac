// Properties that a busy machine may hide.
#pragma once

namespace ridge::test {

/// Returns true if `attempt` succeeds once in five times. A stall of seconds looks like a wait of
/// the code under test; that would wait each time.
template <typename Attempt>
bool succeeds_once(Attempt attempt) {
  for (int number = 0; number < 5; ++number)
    if (attempt()) return true;
  return false;
}

}  // namespace ridge::test
