#include "ridge/base/stats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ridge/base/error.h"

namespace ridge {
namespace {

std::vector<double> checked(std::span<const double> values, const char* who) {
  check_internal(!values.empty(), "[{}] no values", who);
  for (double v : values) check_internal(std::isfinite(v), "[{}] value {} is not finite", who, v);
  return {values.begin(), values.end()};
}

// Half the sum without overflow or, for equal values, rounding.
double midpoint(double a, double b) { return a + (b - a) * 0.5; }

// Reorders `values`.
double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return midpoint(*std::max_element(values.begin(), middle), *middle);
}

// The largest k with P(X < k) <= tail for a discrete X >= 0 given by its probabilities, and that
// probability.
struct LowerTail {
  size_t k = 0;
  double below = 0;
};

template <typename Probability>
LowerTail lower_tail(size_t limit, double tail, Probability probability) {
  LowerTail found;
  while (found.k < limit) {
    const double next = found.below + probability(found.k);
    if (next > tail) break;
    found.below = next;
    ++found.k;
  }
  return found;
}

LowerTail binomial_tail(size_t n, double tail) {
  double log_probability = -static_cast<double>(n) * std::log(2.0);
  return lower_tail(n / 2, tail, [&](size_t k) {
    const double probability = std::exp(log_probability);
    log_probability += std::log(static_cast<double>(n - k) / static_cast<double>(k + 1));
    return probability;
  });
}

// Order statistics k and size + 1 - k (from 1) of `values`.
std::optional<ConfidenceInterval> order_interval(std::vector<double>& values, LowerTail tail) {
  if (tail.k == 0) return std::nullopt;
  std::sort(values.begin(), values.end());
  return ConfidenceInterval{values[tail.k - 1], values[values.size() - tail.k], 1 - 2 * tail.below};
}

double tail_of(double confidence, const char* who) {
  check_internal(confidence > 0 && confidence < 1, "[{}] confidence {}", who, confidence);
  return (1 - confidence) / 2;
}

}  // namespace

double median(std::span<const double> values) {
  std::vector<double> copy = checked(values, "median");
  return median_of(copy);
}

double median_absolute_deviation(std::span<const double> values) {
  std::vector<double> copy = checked(values, "median_absolute_deviation");
  const double centre = median_of(copy);
  for (double& v : copy) v = std::fabs(v - centre);
  return median_of(copy);
}

double quantile(std::span<const double> values, double p) {
  check_internal(p >= 0 && p <= 1, "[quantile] p must lie in [0, 1]; got {}", p);
  std::vector<double> sorted = checked(values, "quantile");
  std::sort(sorted.begin(), sorted.end());
  const double position = static_cast<double>(sorted.size() - 1) * p;
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (position - static_cast<double>(below));
}

std::optional<ConfidenceInterval> median_interval(std::span<const double> values,
                                                  double confidence) {
  std::vector<double> copy = checked(values, "median_interval");
  return order_interval(copy, binomial_tail(copy.size(), tail_of(confidence, "median_interval")));
}

}  // namespace ridge
