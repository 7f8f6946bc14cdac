// Trials in words and numbers for people; texts of a ledger lose what a terminal would obey.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ridge/base/markup.h"
#include "ridge/tune/trial_record.h"

namespace ridge {

/// "not faster", "kept".
std::string words_of(TrialVerdict verdict);
/// "the same bits", "other rounding: ...".
std::string_view words_of(SemanticClass semantic_class);

/// "1.20 .. 1.50", "at most 1.01" where there is a ceiling alone, or "-".
std::string predicted_text(const TrialRecord& record);
/// "1.35 (1.30 .. 1.40)", or "-".
std::string measured_text(const TrialRecord& record);

/// A table with one line a trial, for a terminal: the lines may be printed one by one, as trials
/// end. Each ends in a newline.
std::string trial_heading();
std::string trial_line(const TrialRecord& record);
std::string trial_table(std::span<const TrialRecord> trials);

}  // namespace ridge
