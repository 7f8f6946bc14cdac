#include "ridge/proof/paired_runs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridge/proof/statistics.h"

namespace ridge {
namespace {

constexpr double kConfidence = 0.95, kPower = 0.8;

// No margin can be finer than what another order of summation does to a run.
constexpr double kLeastMargin = 1e-4;

}  // namespace

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double centre = mean(values);
  double squares = 0;
  for (double value : values) squares += (value - centre) * (value - centre);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double fixed_margin(const std::vector<double>& losses) {
  return std::max(deviation(losses), kLeastMargin * std::fabs(mean(losses)));
}

void judge_pairs(const std::vector<double>& differences, GuardRuns& runs) {
  const auto n = static_cast<double>(differences.size());
  const double error = deviation(differences) / std::sqrt(n), freedom = n - 1;
  const double sure = student_quantile(kConfidence, freedom);
  runs.difference = mean(differences);
  runs.lower = runs.difference - sure * error;
  runs.upper = runs.difference + sure * error;
  runs.detectable = (sure + student_quantile(kPower, freedom)) * error;
  runs.power = error > 0 ? student_cdf(runs.margin / error - sure, freedom) : 1.0;
  runs.passed = runs.upper < runs.margin;  // false for NaN
}

}  // namespace ridge
