#include "ridge/base/stats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr size_t kMostPairwise = 10'000;
constexpr size_t kMostExactRanks = 500;

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

std::vector<double> walsh_averages(const std::vector<double>& values, const char* who) {
  check_internal(values.size() <= kMostPairwise, "[{}] more than {} values", who, kMostPairwise);
  std::vector<double> averages;
  averages.reserve(values.size() * (values.size() + 1) / 2);
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = i; j < values.size(); ++j) averages.push_back(midpoint(values[i], values[j]));
  return averages;
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

// Of the signed-rank sum under the null: each of the ranks 1..n is in the sum or not, all 2^n
// choices alike. Probabilities are kept, not counts, so that nothing overflows.
LowerTail signed_rank_tail_exact(size_t n, double tail) {
  const size_t most = n * (n + 1) / 2;
  std::vector<double> probability(most + 1, 0.0);
  probability[0] = 1;
  for (size_t rank = 1, reach = 0; rank <= n; ++rank) {
    reach += rank;
    for (size_t sum = reach + 1; sum-- > 0;)
      probability[sum] = 0.5 * (probability[sum] + (sum >= rank ? probability[sum - rank] : 0.0));
  }
  return lower_tail(most / 2, tail, [&](size_t sum) { return probability[sum]; });
}

// By the normal with the sum's mean and variance, with continuity correction.
LowerTail signed_rank_tail_normal(size_t n, double tail) {
  const double m = static_cast<double>(n);
  const double mean = m * (m + 1) / 4;
  const double deviation = std::sqrt(m * (m + 1) * (2 * m + 1) / 24);
  const auto below = [&](double k) {  // P(X < k) = P(X <= k - 1)
    return 0.5 * std::erfc((mean - (k - 0.5)) / (deviation * std::sqrt(2.0)));
  };
  size_t low = 0, high = n * (n + 1) / 4;  // bisect: low holds, high may not
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (below(static_cast<double>(middle)) <= tail)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, low == 0 ? 0.0 : below(static_cast<double>(low))};
}

// Order statistics k and size + 1 - k (from 1) of `values`.
std::optional<Interval> order_interval(std::vector<double>& values, LowerTail tail) {
  if (tail.k == 0) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Interval{values[tail.k - 1], values[values.size() - tail.k], 1 - 2 * tail.below};
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

std::optional<Interval> median_interval(std::span<const double> values, double confidence) {
  std::vector<double> copy = checked(values, "median_interval");
  return order_interval(copy, binomial_tail(copy.size(), tail_of(confidence, "median_interval")));
}

double hodges_lehmann(std::span<const double> values) {
  std::vector<double> averages =
      walsh_averages(checked(values, "hodges_lehmann"), "hodges_lehmann");
  return median_of(averages);
}

std::optional<Interval> signed_rank_interval(std::span<const double> values, double confidence) {
  const double tail = tail_of(confidence, "signed_rank_interval");
  const size_t n = values.size();
  std::vector<double> averages =
      walsh_averages(checked(values, "signed_rank_interval"), "signed_rank_interval");
  return order_interval(
      averages,
      n <= kMostExactRanks ? signed_rank_tail_exact(n, tail) : signed_rank_tail_normal(n, tail));
}

PairedRatio paired_ratio(std::span<const double> before,
                         std::span<const double> after,
                         double confidence,
                         PairedMethod method) {
  check_internal(before.size() == after.size(),
                 "[paired_ratio] {} values before, {} after",
                 before.size(),
                 after.size());
  std::vector<double> logs;
  for (size_t i = 0; i < before.size(); ++i) {
    check_internal(before[i] > 0 && after[i] > 0,
                   "[paired_ratio] values must be positive; got {} and {}",
                   before[i],
                   after[i]);
    logs.push_back(std::log(after[i] / before[i]));
  }
  const bool ranks = method == PairedMethod::kSignedRank;
  PairedRatio result;
  result.ratio = std::exp(ranks ? hodges_lehmann(logs) : median(logs));
  result.interval =
      ranks ? signed_rank_interval(logs, confidence) : median_interval(logs, confidence);
  if (result.interval) {
    result.interval->low = std::exp(result.interval->low);
    result.interval->high = std::exp(result.interval->high);
  }
  return result;
}

Line theil_sen(std::span<const double> x, std::span<const double> y) {
  check_internal(x.size() == y.size() && x.size() <= kMostPairwise,
                 "[theil_sen] {} values of x, {} of y",
                 x.size(),
                 y.size());
  const std::vector<double> xs = checked(x, "theil_sen"), ys = checked(y, "theil_sen");
  std::vector<double> slopes;
  for (size_t i = 0; i < xs.size(); ++i)
    for (size_t j = i + 1; j < xs.size(); ++j)
      if (xs[i] != xs[j]) slopes.push_back((ys[j] - ys[i]) / (xs[j] - xs[i]));
  check_internal(!slopes.empty(), "[theil_sen] all x are the same");
  Line line;
  line.slope = median_of(slopes);
  std::vector<double> rest;
  for (size_t i = 0; i < xs.size(); ++i) rest.push_back(ys[i] - line.slope * xs[i]);
  line.intercept = median_of(rest);
  return line;
}

}  // namespace ridge
