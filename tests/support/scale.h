// How many random cases a test runs.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace ridge::test {

/// `normal` cases; a tenth (at least 1) under RIDGE_TEST_SCALE=short, ten times under =full.
inline int cases(int normal) {
  const char* scale = std::getenv("RIDGE_TEST_SCALE");
  const std::string_view name = scale == nullptr ? "" : scale;
  if (name == "short") return normal < 10 ? 1 : normal / 10;
  return name == "full" ? normal * 10 : normal;
}

inline bool is_short_scale() { return cases(10) < 10; }
/// Whether case `number` of many that are alike runs: under =short one of `every`, else all.
inline bool is_drawn(size_t number, size_t every) {
  return !is_short_scale() || number % every == 0;
}

/// The number of this run among those that take all cases where one takes minutes of them
/// (RIDGE_TEST_ROUND): ./dev full counts days.
inline size_t test_round() {
  const char* number = std::getenv("RIDGE_TEST_ROUND");
  return number == nullptr ? 0 : std::strtoull(number, nullptr, 10);
}

/// Under =full: tests that take half a minute skip otherwise, with kOnlyFull.
inline bool is_full_scale() { return cases(1) > 1; }
inline constexpr const char* kOnlyFull = "only with RIDGE_TEST_SCALE=full, as ./dev full has it";

}  // namespace ridge::test
