// The verdict of paired runs: losses of the reference give a margin, differences to it a verdict.
#pragma once

#include <cstdint>
#include <vector>

namespace ridge {

/// The result of paired runs. A difference is the candidate's mean loss over the last half of a
/// run, less the reference's.
struct GuardRuns {
  int64_t pairs = 0, steps = 0;
  /// Samples a run, set in place of `steps` where the sides' steps differ in size.
  int64_t samples = 0;
  double margin = 0;      ///< Fixed before the candidate ran.
  double difference = 0;  ///< Mean over the pairs.
  /// One-sided 95 % bounds of `difference`; passed: `upper` is below the margin.
  double lower = 0, upper = 0;
  double detectable = 0;  ///< A loss of this much would be detected with a probability of 80 %.
  double power = 0;       ///< Probability that a candidate without any loss passes.
  bool passed = false;
};

double mean(const std::vector<double>& values);
/// Estimated standard deviation of the population that `values`, at least two, are drawn from.
double deviation(const std::vector<double>& values);

/// A loss within it is one that another order of the samples would have given. `losses` are those
/// of the reference, one a pair.
double fixed_margin(const std::vector<double>& losses);

/// Fills all but what `runs` was made with, from the differences of the pairs, candidate less
/// reference, the margin being fixed.
void judge_pairs(const std::vector<double>& differences, GuardRuns& runs);

}  // namespace ridge
