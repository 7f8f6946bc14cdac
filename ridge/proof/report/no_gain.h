// The report of a run of `ridge optimize` that gained nothing: the trials, how small a gain they
// could have detected, and the steps that are worth taking next.
#pragma once

#include <span>
#include <vector>

#include "ridge/proof/report/summary.h"
#include "ridge/proof/report/words.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// The largest gain that the measurement of a trial leaves possible: a factor, by the confidence of
/// its interval and of its verdict. Nothing where nothing was measured.
std::optional<double> hidden_gain(const TrialRecord& record);

/// Rows named "tried", "may be hidden" and "next", the last one several times.
std::vector<ReportRow> no_gain_rows(const OptimizeSummary& summary,
                                    std::span<const TrialRecord> trials);

}  // namespace ridge
