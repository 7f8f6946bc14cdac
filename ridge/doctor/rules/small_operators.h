// Whether a program on the CPU spends its time on calling operators rather than on their work: what
// R03 and R18 stand on where there is no device.
#pragma once

#include <string>
#include <string_view>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// Small operators of the mean step, as it is without a profiler where the analysis knows of such
/// steps. Shares are of the step; operators that fetch data are left out.
struct SmallOperators {
  double calls = 0;        ///< Calls of operators, without those within others.
  double median_us = 0;    ///< Median length of these calls.
  double between_us = 0;   ///< Median of what lies between two.
  double per_call_us = 0;  ///< Counted at most of a call, by what the smallest ones take.
  double share = 0;        ///< Overhead of the calls, and the time between them.
  /// `share`, the update of the weights, and reading the weights for a few rows: more samples in a
  /// batch would not add to it.
  double fixed_share = 0;
  double looped = 0;      ///< Share of the calls that have many alike, by name and shapes.
  double most_alike = 0;  ///< Calls of those that there are most of.
  std::string alike{};    ///< "aten::add [[64], [64], []]"
  /// The analysis' place where it is known, else by stacks of the trace itself.
  CallPlace place{};
  int64_t rows = 0;   ///< Samples that operators get at once; 0: not known.
  double passes = 1;  ///< Backward passes: more than one where gradients are accumulated.
  Intervals at{}, fixed_at{};

  /// Overhead is most of what there is to gain, since one piece of code calls small operators over
  /// and over.
  bool is_loop() const { return share >= kMuch && looped >= 0.5; }
  bool is_small_batch() const {
    return !is_loop() && rows > 0 && rows <= kFewRows && fixed_share >= kMuch;
  }
  bool is_overhead() const { return share >= kMuch && !is_small_batch(); }

  static constexpr double kMuch = 0.35;
  static constexpr int64_t kFewRows = 8;
  static constexpr int kManyAlike = 32;  ///< A step: more than most models have layers of a kind.
};

/// Measures a program on the CPU that an interpreter drives; shares are 0 where no operator is
/// known.
SmallOperators small_operators(const Trace& trace, const Analysis& analysis);

}  // namespace ridge::doctor
