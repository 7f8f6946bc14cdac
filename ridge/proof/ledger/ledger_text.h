// A ledger for people: all trials as a table, and one in words, with its verdict proven again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/proof/ledger/ledger.h"

namespace ridge {

/// The run and its trials, a line each.
std::string ledger_table(const Ledger& ledger);

/// One object "ridge.ledger.show/1" on a line: the run, and the trials without their blocks.
std::string ledger_json(const Ledger& ledger);

/// The hash of the recipe of which this is the text. UserError where it is none.
using RecipeHash = std::string (*)(std::string_view text);

/// Lists the statements of the record that do not follow from its raw data: verdict and interval
/// are recomputed by the judge from all pairs, the recipe's hash by `hash_of`. Empty where
/// everything holds.
std::vector<std::string> contradictions(const TrialRecord& record, RecipeHash hash_of);

/// Everything about one trial: what was believed, what was measured, how the bets went, why it was
/// kept or not, and its contradictions().
std::string explain_trial(const TrialRecord& record,
                          const std::vector<std::string>& its_contradictions);

}  // namespace ridge
