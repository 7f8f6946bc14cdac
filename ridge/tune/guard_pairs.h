// What paired runs show: losses of the reference give a margin, differences to it a verdict.
#pragma once

#include <vector>

#include "ridge/tune/guard.h"

namespace ridge {

double mean(const std::vector<double>& values);
/// Of the population that `values`, at least two, are drawn from.
double deviation(const std::vector<double>& values);

/// A loss within it is one that another order of the samples would have given. `losses` are those
/// of the reference, one a pair.
double fixed_margin(const std::vector<double>& losses);

/// Fills all but what `runs` was made with, from the differences of the pairs, candidate less
/// reference, the margin being fixed.
void judge_pairs(const std::vector<double>& differences, GuardRuns& runs);

}  // namespace ridge
