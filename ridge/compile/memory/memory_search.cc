// The least layout of a few buffers, by branch and bound.
//
// Push every buffer of a layout down until it rests on another or on the ground, and name them by
// rising offset: each then lies right on top of the highest that it meets in time among those
// before it. So the layouts to look at are orders of the buffers in which offsets do not fall.
#include <algorithm>
#include <set>

#include "ridge/base/error.h"
#include "ridge/compile/memory/memory.h"

namespace ridge {
namespace {

class LayoutSearch {
 public:
  LayoutSearch(std::span<const Lifetime> lifetimes, int64_t below, int64_t nodes)
      : lifetimes_(lifetimes),
        nodes_(nodes),
        best_(below),
        lower_bound_(largest_live_set(lifetimes)),
        rest_(live_by_step(lifetimes)),
        heights_(rest_.size()),
        offsets_(lifetimes.size()) {}

  Layout run() {
    descend(0, lifetimes_.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << lifetimes_.size()) - 1);
    return found_;
  }

 private:
  int64_t bytes(size_t i) const { return aligned_bytes(lifetimes_[i].bytes); }

  int64_t ground(size_t i) const {
    const auto begin = heights_.begin() + lifetimes_[i].begin;
    return *std::max_element(begin, heights_.begin() + lifetimes_[i].end + 1);
  }

  // Buffers that are still to be placed at a step come on top of those that are there.
  bool can_improve() const {
    for (size_t step = 0; step < rest_.size(); ++step)
      if (heights_[step] + rest_[step] >= best_) return false;
    return true;
  }

  void descend(int64_t lowest, uint64_t left) {
    if (--nodes_ < 0 || best_ <= lower_bound_) return;
    if (left == 0) {
      best_ = *std::max_element(heights_.begin(), heights_.end());
      found_ = {offsets_, best_, lower_bound_};
      return;
    }
    for (size_t i = 0; i < lifetimes_.size(); ++i) {
      if ((left >> i & 1) == 0) continue;
      const int64_t offset = ground(i);
      if (offset < lowest || offset + bytes(i) >= best_) continue;
      place(i, offset, left & ~(uint64_t{1} << i));
    }
  }

  void place(size_t i, int64_t offset, uint64_t left) {
    const auto begin = static_cast<size_t>(lifetimes_[i].begin);
    const auto end = static_cast<size_t>(lifetimes_[i].end) + 1;
    const std::vector<int64_t> before(heights_.begin() + lifetimes_[i].begin,
                                      heights_.begin() + lifetimes_[i].end + 1);
    for (size_t step = begin; step < end; ++step) {
      heights_[step] = offset + bytes(i);
      rest_[step] -= bytes(i);
    }
    offsets_[i] = offset;
    if (can_improve()) descend(offset, left);
    for (size_t step = begin; step < end; ++step) {
      heights_[step] = before[step - begin];
      rest_[step] += bytes(i);
    }
  }

  std::span<const Lifetime> lifetimes_;
  int64_t nodes_;
  int64_t best_;
  int64_t lower_bound_;
  std::vector<int64_t> rest_;     ///< Bytes still to be placed, by step.
  std::vector<int64_t> heights_;  ///< End of the placed bytes, by step.
  std::vector<int64_t> offsets_;
  Layout found_;
};

// The same overlaps over fewer steps: only where a buffer begins can a live set be the largest.
std::vector<Lifetime> at_begins(std::span<const Lifetime> lifetimes) {
  std::set<int> begins;
  for (const Lifetime& life : lifetimes) begins.insert(life.begin);
  const auto number = [&](int step) {
    return static_cast<int>(std::distance(begins.begin(), begins.upper_bound(step))) - 1;
  };
  std::vector<Lifetime> result;
  for (const Lifetime& life : lifetimes)
    result.push_back({life.bytes, number(life.begin), number(life.end)});
  return result;
}

}  // namespace

Layout search_layout(std::span<const Lifetime> lifetimes, int64_t below, int64_t nodes) {
  check_internal(lifetimes.size() <= 64, "a search over {} buffers", lifetimes.size());
  const std::vector<Lifetime> few_steps = at_begins(lifetimes);
  return LayoutSearch(few_steps, below, nodes).run();
}

}  // namespace ridge
