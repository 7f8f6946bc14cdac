// The report of `ridge optimize`: a page, an object of JSON, and a text. All have the same numbers.
// A record of the technique kProofTechnique is the claim's, and is no trial in them.
#pragma once

#include <span>
#include <string>

#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// One self-contained page.
std::string optimize_html(const OptimizeSummary& summary, std::span<const TrialRecord> trials);

/// One object "ridge.optimize/1" on a line. Where nothing was gained the recipe is empty and the
/// claim is {1, 1, 1}. What was not measured is null.
std::string optimize_json(const OptimizeSummary& summary, std::span<const TrialRecord> trials);

/// For a terminal: the claim, both variants, the trials, the recipe. If nothing was gained,
/// no_gain_rows() in place of both variants; for a dry run the cost of a step, and the trials as
/// they would be. `all` lists also the trials that cannot help.
std::string optimize_text(const OptimizeSummary& summary,
                          std::span<const TrialRecord> trials,
                          bool all = false);

}  // namespace ridge
