#include "ridge/compile/memory/memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

namespace ridge {

std::vector<int64_t> live_by_step(std::span<const Lifetime> lifetimes) {
  int last = -1;
  for (const Lifetime& lifetime : lifetimes) last = std::max(last, lifetime.end);
  std::vector<int64_t> live(static_cast<size_t>(last) + 2);
  for (const Lifetime& lifetime : lifetimes) {
    live[static_cast<size_t>(lifetime.begin)] += aligned_bytes(lifetime.bytes);
    live[static_cast<size_t>(lifetime.end) + 1] -= aligned_bytes(lifetime.bytes);
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

int64_t largest_live_set(std::span<const Lifetime> lifetimes) {
  const std::vector<int64_t> live = live_by_step(lifetimes);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

namespace {

// Buffers that repairs may visit: some hundredths of a second. Each order is repaired until so many
// rounds in a row gained nothing: by then they mostly go round in circles.
constexpr int64_t kRepairVisits = 20'000'000;
constexpr int kRoundsWithoutGain = 24;
constexpr int64_t kSearchNodes = 40'000;
constexpr size_t kSearchBuffers = 24;

using Order = std::vector<size_t>;

// Puts buffers one by one into the gaps that those before them left.
class GreedyLayout {
 public:
  enum class Fit : uint8_t { kSmallestGap, kLowestGap };

  explicit GreedyLayout(std::span<const Lifetime> lifetimes) : lifetimes_(lifetimes) {
    spaces_.reserve(lifetimes.size());
    first_.reserve(lifetimes.size());
    last_.reserve(lifetimes.size());
    meets_.resize(lifetimes.size() + kTogether);
  }

  int64_t bytes(size_t i) const { return aligned_bytes(lifetimes_[i].bytes); }
  int64_t visits() const { return visits_; }

  Layout place(const Order& order, Fit fit) {
    Layout layout;
    layout.offsets.resize(lifetimes_.size());
    spaces_.clear();
    first_.clear();
    last_.clear();
    for (size_t index : order) {
      const Lifetime& life = lifetimes_[index];
      const int64_t offset = find_gap(life, bytes(index), fit);
      const int64_t end = offset + bytes(index);
      layout.offsets[index] = offset;
      layout.peak = std::max(layout.peak, end);
      const auto behind = std::upper_bound(
          spaces_.begin(), spaces_.end(), offset, [](int64_t value, const Space& other) {
            return value < other.offset;
          });
      const auto at = behind - spaces_.begin();
      spaces_.insert(behind, {offset, end});
      first_.insert(first_.begin() + at, life.begin);
      last_.insert(last_.begin() + at, life.end);
    }
    return layout;
  }

 private:
  struct Space {
    int64_t offset;
    int64_t end;
  };
  static constexpr size_t kTogether = sizeof(uint64_t);

  int64_t find_gap(const Lifetime& own, int64_t wanted, Fit fit) {
    mark_those_met(own);
    int64_t best = -1, best_gap = 0, free_from = 0;
    for (size_t block = 0; block < spaces_.size(); block += kTogether) {
      uint64_t met;
      std::memcpy(&met, &meets_[block], sizeof met);
      for (; met != 0; met &= met - 1) {
        const Space& other = spaces_[block + static_cast<size_t>(std::countr_zero(met)) / 8];
        const int64_t gap = other.offset - free_from;
        if (gap >= wanted && (best < 0 || gap < best_gap)) {
          best = free_from;
          best_gap = gap;
          if (fit == Fit::kLowestGap) return best;
        }
        free_from = std::max(free_from, other.end);
      }
    }
    return best >= 0 ? best : free_from;
  }

  // One byte each, by a loop that becomes vectors: a good part of planning is spent here.
  void mark_those_met(const Lifetime& own) {
    const size_t n = spaces_.size();
    visits_ += static_cast<int64_t>(n);
    const int begin = own.begin, end = own.end;
    const int *first = first_.data(), *last = last_.data();
    uint8_t* const meets = meets_.data();
    for (size_t i = 0; i < n; ++i)
      meets[i] = static_cast<uint8_t>((first[i] <= end) & (begin <= last[i]));
    std::fill_n(meets + n, kTogether, uint8_t{0});
  }

  std::span<const Lifetime> lifetimes_;
  // Those that are placed, by offset: where they lie, and the steps of their lives.
  std::vector<Space> spaces_;
  std::vector<int> first_, last_;
  std::vector<uint8_t> meets_;  ///< Whether each of them meets the next one in time.
  int64_t visits_ = 0;
};

Order order_by(std::span<const Lifetime> lifetimes, auto&& before) {
  Order order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return before(lifetimes[a], lifetimes[b]);
  });
  return order;
}

// Ways to rank buffers, the one that mostly wins first.
std::vector<Order> greedy_orders(std::span<const Lifetime> lifetimes) {
  const auto area = [](const Lifetime& life) {
    return static_cast<double>(life.bytes) * (life.end - life.begin + 1);
  };
  const auto length = [](const Lifetime& life) { return life.end - life.begin; };
  return {order_by(lifetimes, [](const auto& a, const auto& b) { return a.bytes > b.bytes; }),
          order_by(lifetimes, [&](const auto& a, const auto& b) { return area(a) > area(b); }),
          order_by(lifetimes, [&](const auto& a, const auto& b) { return length(a) > length(b); }),
          order_by(lifetimes, [](const auto& a, const auto& b) { return a.begin < b.begin; }),
          order_by(lifetimes, [](const auto& a, const auto& b) { return a.end > b.end; })};
}

class Planner {
 public:
  explicit Planner(std::span<const Lifetime> lifetimes)
      : lifetimes_(lifetimes),
        greedy_(lifetimes),
        lower_bound_(largest_live_set(lifetimes)),
        orders_(greedy_orders(lifetimes)) {}

  Layout run() {
    for (size_t i = 0; i < orders_.size() && !is_done(); ++i)
      for (const auto fit : kFits) keep(greedy_.place(orders_[i], fit));
    if (!is_done() && lifetimes_.size() <= kSearchBuffers) {
      const Layout found = search_layout(lifetimes_, best_.peak, kSearchNodes);
      if (!found.offsets.empty()) best_ = found;
    }
    const int64_t each = kRepairVisits / static_cast<int64_t>(std::size(kFits) * orders_.size());
    for (size_t i = 0; i < orders_.size() && !is_close(best_.peak, lower_bound_); ++i)
      for (const auto fit : kFits) repair(orders_[i], fit, greedy_.visits() + each);
    best_.lower_bound = lower_bound_;
    return best_;
  }

 private:
  static constexpr GreedyLayout::Fit kFits[] = {GreedyLayout::Fit::kSmallestGap,
                                                GreedyLayout::Fit::kLowestGap};

  bool is_done() const { return !best_.offsets.empty() && best_.peak == lower_bound_; }

  void keep(const Layout& layout) {
    if (best_.offsets.empty() || layout.peak < best_.peak) best_ = layout;
  }

  // Those that ended above the lower bound are placed before all others the next time.
  void repair(Order order, GreedyLayout::Fit fit, int64_t until) {
    int without_gain = 0;
    int64_t least = -1;
    while (greedy_.visits() < until && !is_close(best_.peak, lower_bound_) &&
           without_gain < kRoundsWithoutGain) {
      const Layout layout = greedy_.place(order, fit);
      keep(layout);
      without_gain = least < 0 || layout.peak < least ? 0 : without_gain + 1;
      least = least < 0 ? layout.peak : std::min(least, layout.peak);
      const auto too_high = [&](size_t i) {
        return layout.offsets[i] + greedy_.bytes(i) > lower_bound_;
      };
      const Order before = order;
      std::stable_partition(order.begin(), order.end(), too_high);
      if (order == before) return;
    }
  }

  std::span<const Lifetime> lifetimes_;
  GreedyLayout greedy_;
  int64_t lower_bound_;
  std::vector<Order> orders_;
  Layout best_;
};

Layout all_apart(std::span<const Lifetime> lifetimes) {
  Layout layout;
  layout.lower_bound = largest_live_set(lifetimes);
  for (const Lifetime& life : lifetimes) {
    layout.offsets.push_back(layout.peak);
    layout.peak += aligned_bytes(life.bytes);
  }
  return layout;
}

}  // namespace

Layout lay_out(std::span<const Lifetime> lifetimes, bool reuse) {
  if (lifetimes.empty()) return {};
  return reuse ? Planner(lifetimes).run() : all_apart(lifetimes);
}

}  // namespace ridge
