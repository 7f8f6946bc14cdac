#include "ridge/proof/statistics.h"

#include <cmath>
#include <limits>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Continued fraction of the incomplete beta function by Lentz's method; converges quickly for
// x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away = [](double v) { return std::fabs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), result = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    result *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return result;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double student_cdf(double t, double freedom) {
  check_internal(freedom > 0, "[student_cdf] {} degrees of freedom", freedom);
  const double tail = 0.5 * incomplete_beta(0.5 * freedom, 0.5, freedom / (freedom + t * t));
  return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double freedom) {
  check_internal(p > 0 && p < 1, "[student_quantile] p = {}", p);
  if (p > 0.5) return -student_quantile(1 - p, freedom);  // the lower tail keeps its digits
  double low = -1, high = 0;
  while (student_cdf(low, freedom) > p) low *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (student_cdf(middle, freedom) < p ? low : high) = middle;
  }
  return high;
}

Slope slope_of(const std::vector<GroupSums>& groups) {
  double fr = 0, fc = 0;
  for (const GroupSums& group : groups) {
    fr += group.fr;
    fc += group.fc;
  }
  if (!(fr > 0)) return {std::numeric_limits<double>::quiet_NaN(), 0, 0};
  Slope slope;
  slope.value = fc / fr;
  const auto n = static_cast<double>(groups.size());
  slope.freedom = n - 1;
  slope.error = std::numeric_limits<double>::infinity();
  if (groups.size() < 3) return slope;
  double squares = 0;
  for (const GroupSums& group : groups) squares += std::pow(group.fc - slope.value * group.fr, 2);
  slope.error = std::sqrt(squares * n / (n - 1)) / fr;
  return slope;
}

}  // namespace ridge
