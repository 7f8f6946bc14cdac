// The trials of a run by what they are to a reader: what was kept, what was tried besides, what
// could still be tried, and what cannot help.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ridge/proof/trial_record.h"

namespace ridge {

/// All point into the trials that they were made from; the final proof is in none.
struct TrialGroups {
  std::vector<const TrialRecord*> kept;
  /// Measured or failed, and not kept: the largest gain first, then the trials without a kept
  /// change. What is likely to gain and was not tried stands at the end.
  std::vector<const TrialRecord*> close;
  /// Not tried, but could gain: there was no time for it, or the user does not allow it.
  std::vector<const TrialRecord*> untried;
  /// Does not apply here, or is predicted to gain nothing.
  std::vector<const TrialRecord*> useless;
};

TrialGroups group_trials(std::span<const TrialRecord> trials);

/// Whether something was run for it: it has a verdict of its own, or none for a failure.
bool was_run(const TrialRecord& record);

/// Whether it was not tried because the budget, or the run, was over before its turn.
bool came_too_late(const TrialRecord& record);

/// Whether it is the user's leave that it lacks.
bool needs_leave(const TrialRecord& record);

/// "not tried (the budget has no time left for it): jit, bf16", a line for each reason.
std::vector<std::string> untried_lines(const TrialGroups& groups);

/// "14 others cannot help here"; empty where there are none.
std::string useless_words(const TrialGroups& groups);

/// The verdict in words. What was kept and taken away again later is "dropped"; of a trial without
/// a kept change, which only says whether that one still gains, it "stays".
std::string verdict_words(const TrialRecord& record, bool is_kept);

}  // namespace ridge
