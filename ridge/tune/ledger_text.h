// A ledger for people: all trials as a table, and one in words, with its verdict proven again.
#pragma once

#include <string>
#include <vector>

#include "ridge/tune/ledger.h"

namespace ridge {

/// The run and its trials, a line each.
std::string ledger_table(const Ledger& ledger);

/// One object "ridge.ledger.show/1" on a line: the run, and the trials without their blocks.
std::string ledger_json(const Ledger& ledger);

/// What of the record does not follow from its raw data: the verdict and the interval from the
/// judge after all pairs, the hash from the recipe. Empty where everything holds.
std::vector<std::string> contradictions(const TrialRecord& record);

/// Everything about one trial: what was believed, what was measured, how the bets went, why it was
/// kept or not, and contradictions().
std::string explain_trial(const TrialRecord& record);

}  // namespace ridge
