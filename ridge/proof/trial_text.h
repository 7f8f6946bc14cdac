// Trials in words and numbers for people; texts of a ledger lose what a terminal would obey.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/base/html/markup.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// "not faster", "kept".
std::string words_of(TrialVerdict verdict);
/// "the same bits", "other rounding: ...".
std::string_view words_of(SemanticClass semantic_class);

/// A bound that is worth telling: what a step would gain if all that the change is about cost
/// nothing. One of kTellingBound or more rules out nothing that anybody would expect.
inline constexpr double kTellingBound = 2;
std::optional<double> telling_bound(const TrialRecord& record);

/// "1.20 to 1.50", "bound 1.28" where there is nothing but a telling bound, or "-".
std::string predicted_text(const TrialRecord& record);
/// "1.35 (1.30 to 1.40)", or "-".
std::string measured_text(const TrialRecord& record);

/// The change and the reason of the verdict, without what the verdict says already: "loader.workers
/// 0 -> 2", "jit true -> false: no verdict after 9 pairs".
std::string change_and_reason(const TrialRecord& record);

/// All trials in their order, for a terminal.
std::string trial_table(std::span<const TrialRecord> trials);

struct GroupedForm {
  bool all = false;      ///< A row for each trial that cannot help, in place of their number.
  bool untried = false;  ///< A row for each that could still be tried, in place of their names.
};

/// A run's trials for a terminal: a table of what was kept and of what came close, and a few lines
/// for the rest.
std::string grouped_trials(std::span<const TrialRecord> trials, GroupedForm form = {});

/// One trial on a line that is shown as soon as it ends; empty where nothing was run.
std::string trial_note(const TrialRecord& record);

}  // namespace ridge
