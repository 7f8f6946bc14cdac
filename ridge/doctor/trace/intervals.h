// Sets of stretches of time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ridge::doctor {

/// [begin, end) in nanoseconds.
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t length() const { return std::max<int64_t>(0, end - begin); }
  bool operator==(const Interval&) const = default;
};

/// Disjoint, not touching, ascending, none empty.
using Intervals = std::vector<Interval>;

/// Takes any stretches, in any order.
Intervals union_of(std::vector<Interval> stretches);
int64_t total_length(const Intervals& set);
/// Time that is in both; time that is in `a` and not in `b`. Linear in their sizes.
Intervals intersection_of(const Intervals& a, const Intervals& b);
Intervals difference_of(const Intervals& a, const Intervals& b);
/// The part of `set` within `window`.
Intervals clipped(const Intervals& set, Interval window);

}  // namespace ridge::doctor
