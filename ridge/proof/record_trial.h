// Copies the measurements of a trial into its record.
#pragma once

#include <string>

#include "ridge/proof/trial.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// Copies pairs, steps and gain, and fills in the verdict that follows from them, with its reason.
void record_trial(TrialRecord& record, const TrialResult& trial, const JudgeOptions& judge);
/// Why no verdict stands.
std::string open_reason(const TrialResult& trial);
/// Share of the blocks' time in which a step waited for data: `blocks` is &Pair::before or after.
double wait_share(const std::vector<Pair>& pairs, const Block (Pair::*blocks)[2]);

}  // namespace ridge
