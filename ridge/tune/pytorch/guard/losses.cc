// Programs that train: what the first steps show, and losses of the later half.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "ridge/base/stats.h"
#include "ridge/proof/paired_runs.h"
#include "ridge/proof/statistics.h"
#include "ridge/tune/pytorch/guard/parts.h"

namespace ridge {
namespace {

using attach::RunRecord;

// Nineteen of twenty seeds lie within.
constexpr double kDeviations = 2;
// Where seeds change nothing: bf16 by itself makes that much of a difference.
constexpr double kLeastMargin = 0.02;
constexpr double kConfidence = 0.95;
// Of what is called worse, or far too good: one in a hundred that are not is.
constexpr double kSure = 0.995;
constexpr double kLeastPower = 0.5;
constexpr int64_t kLeastSteps = 8;

std::vector<double> finite(std::span<const double> values) {
  std::vector<double> kept;
  for (const double value : values)
    if (std::isfinite(value)) kept.push_back(value);
  return kept;
}

double mean_or_zero(const std::vector<double>& values) { return values.empty() ? 0 : mean(values); }

/// How far losses lie apart over the steps of a run; of normal ones the deviation. A few wild ones
/// do not count.
double spread_of(const ForeignRuns& runs) {
  constexpr double kTails = 2.563;  // between the tenths of a normal distribution, in deviations
  std::vector<double> spreads;
  for (const RunRecord& run : runs) {
    const std::vector<double> losses = finite(run.losses);
    if (losses.size() < 2) continue;
    spreads.push_back((quantile(losses, 0.9) - quantile(losses, 0.1)) / kTails);
  }
  return mean_or_zero(spreads);
}

std::span<const double> later_half(const std::vector<double>& losses) {
  return std::span(losses).subspan(losses.size() / 2);
}

double late_loss(const RunRecord& run) { return mean_or_zero(finite(later_half(run.losses))); }

/// Mean over the later steps, candidate less baseline.
double late_difference(const RunRecord& baseline, const RunRecord& candidate) {
  std::vector<double> differences;
  const size_t steps = std::min(baseline.losses.size(), candidate.losses.size());
  for (size_t i = baseline.losses.size() / 2; i < steps; ++i)
    if (std::isfinite(baseline.losses[i]))
      differences.push_back(candidate.losses[i] - baseline.losses[i]);
  return mean_or_zero(differences);
}

/// Deviation of the later losses over the seeds.
double seed_deviation(const ForeignRuns& seeds) {
  std::vector<double> losses;
  for (const RunRecord& run : seeds) losses.push_back(late_loss(run));
  return losses.size() < 2 ? 0 : deviation(losses);
}

/// Differences of the later losses over the pairs.
struct LaterSteps {
  double mean = 0;
  double upper = 0;                                       ///< With 95 % no more.
  bool is_surely_above = false, is_surely_below = false;  ///< Of zero, with 99.5 %.
};

LaterSteps later_steps(const ForeignBaseline& baseline, const ForeignRuns& candidates) {
  std::vector<double> differences;
  for (size_t i = 0; i < candidates.size(); ++i)
    differences.push_back(late_difference(baseline.seeds[i], candidates[i]));
  const auto pairs = static_cast<double>(differences.size());
  const bool is_one = differences.size() == 1;
  // One pair shows no deviation of its own: it counts as two runs of different seeds.
  const double error = is_one ? std::sqrt(2.0) * seed_deviation(baseline.seeds)
                              : deviation(differences) / std::sqrt(pairs);
  const double freedom = is_one ? static_cast<double>(baseline.seeds.size()) - 1 : pairs - 1;
  LaterSteps later;
  later.mean = mean(differences);
  later.upper = later.mean + student_quantile(kConfidence, freedom) * error;
  const double sure = student_quantile(kSure, freedom) * error;
  later.is_surely_above = later.mean > sure;
  later.is_surely_below = later.mean < -sure;
  return later;
}

/// What is missing for a judgement; empty: nothing.
std::string missing_for(const ForeignBaseline& baseline,
                        const ForeignRuns& candidates,
                        const ForeignMargin& margin,
                        bool is_of_pairs) {
  const RunRecord& first = baseline.seeds[0];
  if (first.losses.empty()) return "no loss of the program was seen: no .backward() on a scalar";
  const int64_t least = is_of_pairs ? kForeignSteps : kLeastSteps;
  if (first.steps < least)
    return fmt::format("{} steps are too few; {} are needed", first.steps, least);
  if (!(spread_of(baseline.seeds) > 0))
    return "the loss does not move over the steps, so there is no measure for differences";
  if (baseline.seeds.size() < 2) return "one seed shows no noise; 2 are needed at least";
  if (!is_of_pairs) return "";
  if (candidates.size() < baseline.seeds.size())
    return fmt::format("{} of {} seeds were run", candidates.size(), baseline.seeds.size());
  if (margin.power < kLeastPower)
    return fmt::format("{} seeds have a power of {:.2f} only; {} are needed",
                       baseline.seeds.size(),
                       margin.power,
                       kForeignSeeds);
  return "";
}

GuardOutcome judge_later(const ForeignBaseline& baseline,
                         const ForeignRuns& candidates,
                         const ForeignMargin& margin,
                         bool is_of_pairs) {
  const LaterSteps later = later_steps(baseline, candidates);
  const std::string extent = extent_of(candidates, "steps");
  const std::string allowed = fmt::format("{:.3g}, as other seeds make it", margin.margin);
  if (later.is_surely_above && later.mean > margin.margin)
    return guard_failed(fmt::format(
        "after {} the loss is worse by {:.3g} (allowed {})", extent, later.mean, allowed));
  // So much better is no training of the same model.
  if (later.is_surely_below && later.mean < -2 * margin.margin)
    return guard_failed(fmt::format(
        "after {} the loss is lower by {:.3g}, which no seed makes it", extent, -later.mean));
  if (!is_of_pairs && std::fabs(later.mean) <= margin.margin)
    return guard_passed(fmt::format("losses of {}: later ones differ by {:.3g} (allowed {})",
                                    extent,
                                    std::fabs(later.mean),
                                    allowed));
  if (is_of_pairs && later.upper <= margin.margin)
    return guard_passed(
        fmt::format("no evidence of a loss above {:.3g}, at power {:.2f}, in losses of {}",
                    margin.margin,
                    margin.power,
                    extent));
  return guard_open(fmt::format(
      "after {} the loss may be worse by {:.3g} (allowed {})", extent, later.upper, allowed));
}

}  // namespace

ForeignMargin margin_of(const ForeignBaseline& baseline) {
  if (baseline.seeds.size() < 2 || baseline.seeds[0].losses.empty()) return {};
  const auto pairs = static_cast<double>(baseline.seeds.size());
  const double noise = seed_deviation(baseline.seeds);
  ForeignMargin margin;
  margin.margin = std::max(kDeviations * noise, kLeastMargin * spread_of(baseline.seeds));
  const double error = std::sqrt(2.0) * noise / std::sqrt(pairs), freedom = pairs - 1;
  const double sure = student_quantile(kConfidence, freedom);
  margin.power = error > 0 ? student_cdf(margin.margin / error - sure, freedom) : 1.0;
  return margin;
}

GuardOutcome judge_losses(const ForeignBaseline& baseline,
                          const ForeignRuns& candidates,
                          SemanticClass semantic_class) {
  const bool is_trajectory = semantic_class == SemanticClass::kTrajectory;
  const bool is_of_pairs = is_trajectory || semantic_class == SemanticClass::kPrecision;
  const ForeignMargin margin = margin_of(baseline);
  const double spread = spread_of(baseline.seeds);
  Shown first{true, "its samples are others, so no step is the same"};
  if (!is_trajectory && !baseline.seeds[0].losses.empty() && spread > 0) {
    const ControlRuns controls = controls_for(baseline, semantic_class);
    if (controls.runs.empty())
      return guard_open("no run with a harmless change was made to compare");
    first = compare_first_steps(baseline, candidates, controls, spread);
  }
  GuardOutcome answer;
  if (!first.passes) {
    answer = guard_failed(first.text);
  } else if (const std::string missing = missing_for(baseline, candidates, margin, is_of_pairs);
             !missing.empty()) {
    answer = guard_open(missing);
  } else {
    answer = judge_later(baseline, candidates, margin, is_of_pairs);
    answer.text += "; " + first.text + "; what comes after these steps was not looked at";
  }
  if (is_of_pairs) {
    answer.margin = margin.margin;
    answer.power = margin.power;
  }
  return answer;
}

}  // namespace ridge
