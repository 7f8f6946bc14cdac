// Measures that rules share: how grave a share of the step is, and how much a cost could give back.
#pragma once

#include <vector>

#include "ridge/doctor/findings/finding.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {

/// Shares of a step from which a finding is worth a word, a warning, and is grave.
struct Ladder {
  double info = 0.03, warning = 0.05, high = 0.20;
};

/// kInfo below `warning`: whether it fires at all is the rule's to say.
Severity severity_of(double share, const Ladder& ladder);

/// `cost_ms` as a share of the mean step; 0 where there is no step.
double share_of(double cost_ms, const Analysis& analysis);

/// Sets cost, share, ceiling, and a prediction: from `least` of the cost comes back up to all of
/// it.
void charge(Finding& finding, const Analysis& analysis, double cost_ms, double least = 0.5);

/// Times as fast when `recovered_ms` of a step of `step_ms` are gone; at most 100.
double speedup_without(double recovered_ms, double step_ms);

/// One number for each steady step: milliseconds of `set` within it.
std::vector<double> ms_in_steps(const Intervals& set, const Steps& steps);

/// The middle one, or the mean of the two in the middle; 0 of none.
double middle_of(const std::vector<double>& values);

}  // namespace ridge::doctor
