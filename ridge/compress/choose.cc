#include "ridge/compress/choose.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ridge::compress {

double SiteCost::worth() const {
  return error > 0 ? gain / error : std::numeric_limits<double>::infinity();
}

std::vector<size_t> order_by_gain(const std::vector<SiteCost>& costs) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return costs[a].worth() > costs[b].worth(); });
  return order;
}

size_t most_within(size_t count, double limit, FunctionRef<double(size_t)> drop) {
  if (count == 0 || drop(count) <= limit) return count;
  size_t within = 0, beyond = count;
  while (beyond - within > 1) {
    const size_t tried = within + (beyond - within) / 2;
    (drop(tried) <= limit ? within : beyond) = tried;
  }
  return within;
}

}  // namespace ridge::compress
