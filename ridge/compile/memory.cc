#include "ridge/compile/memory.h"

#include <algorithm>
#include <numeric>

namespace ridge {
namespace {

struct Placed {
  int64_t offset;
  int64_t bytes;
};

// The smallest gap of at least `bytes` between the buffers of `busy`; the end when none fits.
int64_t best_fit(std::vector<Placed>& busy, int64_t bytes) {
  std::sort(busy.begin(), busy.end(), [](const Placed& a, const Placed& b) {
    return a.offset < b.offset;
  });
  int64_t best = -1, best_gap = 0, free_from = 0;
  for (const Placed& other : busy) {
    const int64_t gap = other.offset - free_from;
    if (gap >= bytes && (best < 0 || gap < best_gap)) {
      best = free_from;
      best_gap = gap;
    }
    free_from = std::max(free_from, other.offset + other.bytes);
  }
  return best >= 0 ? best : free_from;
}

int64_t largest_live_set(std::span<const Lifetime> lifetimes) {
  int last = 0;
  for (const Lifetime& lifetime : lifetimes) last = std::max(last, lifetime.end);
  std::vector<int64_t> change(static_cast<size_t>(last) + 2);
  for (const Lifetime& lifetime : lifetimes) {
    change[static_cast<size_t>(lifetime.begin)] += aligned_bytes(lifetime.bytes);
    change[static_cast<size_t>(lifetime.end) + 1] -= aligned_bytes(lifetime.bytes);
  }
  int64_t live = 0, largest = 0;
  for (int64_t delta : change) largest = std::max(largest, live += delta);
  return largest;
}

}  // namespace

Layout lay_out(std::span<const Lifetime> lifetimes, bool reuse) {
  Layout layout;
  layout.offsets.resize(lifetimes.size());
  layout.lower_bound = largest_live_set(lifetimes);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lifetimes[a].bytes > lifetimes[b].bytes;
  });
  std::vector<size_t> done;
  std::vector<Placed> busy;
  for (size_t index : order) {
    const Lifetime& own = lifetimes[index];
    const int64_t bytes = aligned_bytes(own.bytes);
    busy.clear();
    for (size_t other : done) {
      const Lifetime& placed = lifetimes[other];
      if (!reuse || (placed.begin <= own.end && own.begin <= placed.end))
        busy.push_back({layout.offsets[other], aligned_bytes(placed.bytes)});
    }
    layout.offsets[index] = best_fit(busy, bytes);
    layout.peak = std::max(layout.peak, layout.offsets[index] + bytes);
    done.push_back(index);
  }
  return layout;
}

}  // namespace ridge
