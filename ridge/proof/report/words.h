// The results of `ridge optimize` in words: the same for terminal and report.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// A quantity of both variants.
struct ComparisonRow {
  std::string name, before, after;
};

/// Step, speed, wait, memory, energy and money, as far as one of both was measured; what was not
/// says so.
std::vector<ComparisonRow> comparison_rows(const OptimizeSummary& summary);

/// A name, and what is said of it.
using ReportRow = std::pair<std::string, std::string>;

/// The quantities that are known of the variant that stays, where nothing became faster: there is
/// nothing to compare.
std::vector<ReportRow> baseline_rows(const OptimizeSummary& summary);

/// "R01 input starved: nothing to compute until data comes (40 % of a step, 1.66 times at most)"
std::string finding_words(const StepFinding& finding);

/// The findings of the examination that weigh most, or why there are none, a row each; no row where
/// there was no examination.
std::vector<ReportRow> examination_rows(const OptimizeSummary& summary);

/// "ridge train run.toml --recipe recipe.toml"; FILE stands for a recipe that was not written.
std::string recipe_command(const OptimizeSummary& summary);

/// The claim that a summary supports: {1, 1, 1} where nothing was gained, whatever it says.
OptimizeClaim claim_of(const OptimizeSummary& summary);

/// "1.84 times as fast", or "1.84 times as fast per sample" where steps differ.
std::string claim_words(const OptimizeClaim& claim);
/// "1.84 times as fast (1.79 to 1.90, 95 %)"
std::string claim_range_words(const OptimizeClaim& claim);

/// Each kept change that makes other updates: a reader who only looks at the claim has to know.
std::vector<std::string> trajectory_notes(const OptimizeSummary& summary,
                                          std::span<const TrialRecord> trials);

/// The words of the claim, or "nothing was gained", or that a limit of memory is kept.
std::string claim_title(const OptimizeSummary& summary);
/// How sure that is.
std::string claim_text(const OptimizeSummary& summary);

/// "no evidence of loss above 0.012, at power 0.86", or what the guard said instead.
std::string guard_text(const OptimizeGuard& guard);

/// "confirmed: held-out loss 0.5, and ..." of a summary with a confirmation.
std::string confirmation_text(const OptimizeSummary& summary);

/// Steps of the variant for the samples of 1000 steps before.
double steps_as_1000(const OptimizeSummary& summary, const VariantSpeed& variant);

/// Money for them; nothing without a price or a time.
std::optional<double> price_of_1000_steps(const OptimizeSummary& summary,
                                          const VariantSpeed& variant);

/// Joules for the same samples, before over after; nothing where one is not known.
std::optional<double> energy_ratio(const OptimizeSummary& summary);

/// "152.3 MiB"
std::string mebibytes(double bytes);

}  // namespace ridge
