#include "ridge/doctor/trace/intervals.h"

namespace ridge::doctor {

Intervals union_of(std::vector<Interval> stretches) {
  std::erase_if(stretches, [](const Interval& stretch) { return stretch.length() == 0; });
  std::sort(stretches.begin(), stretches.end(), [](const Interval& a, const Interval& b) {
    return a.begin < b.begin;
  });
  Intervals set;
  for (const Interval& stretch : stretches) {
    if (!set.empty() && stretch.begin <= set.back().end)
      set.back().end = std::max(set.back().end, stretch.end);
    else
      set.push_back(stretch);
  }
  return set;
}

int64_t total_length(const Intervals& set) {
  int64_t sum = 0;
  for (const Interval& stretch : set) sum += stretch.length();
  return sum;
}

Intervals intersection_of(const Intervals& a, const Intervals& b) {
  Intervals both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (common.length() > 0) both.push_back(common);
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return both;
}

Intervals difference_of(const Intervals& a, const Intervals& b) {
  Intervals rest;
  size_t first = 0;  // All stretches of b before this index end before the stretch begins.
  for (Interval stretch : a) {
    while (first < b.size() && b[first].end <= stretch.begin) ++first;
    for (size_t j = first; j < b.size() && b[j].begin < stretch.end; ++j) {
      if (b[j].begin > stretch.begin) rest.push_back({stretch.begin, b[j].begin});
      stretch.begin = b[j].end;
    }
    if (stretch.length() > 0) rest.push_back(stretch);
  }
  return rest;
}

Intervals clipped(const Intervals& set, Interval window) {
  Intervals inside;
  auto it = std::partition_point(set.begin(), set.end(), [&window](const Interval& stretch) {
    return stretch.end <= window.begin;
  });
  for (; it != set.end() && it->begin < window.end; ++it) {
    const Interval part{std::max(it->begin, window.begin), std::min(it->end, window.end)};
    if (part.length() > 0) inside.push_back(part);
  }
  return inside;
}

}  // namespace ridge::doctor
