// Programs that train: losses and norms of gradients, of the first steps and of the later half.
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

// The first step is the same computation on the same numbers. In f32 its loss moves, summed in
// another order, by some 1e-6 of its size, and a deep network with batch norm makes ten times that
// of it; its gradients' norm by ten times more. An update multiplies that: Adam's first one turns
// the sign of each gradient that is only rounding. So each step is allowed ten times the one
// before, and after three nothing.
constexpr size_t kFirstSteps = 3;
constexpr double kGrowth = 10;
constexpr double kLossOfSpread = 1e-3, kLossOfSize = 2e-5, kNorm = 1e-3;
// In bf16 a number is known to 0.2 %, a loss of some layers of them to a few hundredths of what it
// moves by, and a norm of gradients to as much of itself.
constexpr double kCoarseLoss = 0.05, kCoarseNorm = 0.1;
// The repeat is one sample of its noise.
constexpr double kNoise = 4;

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

/// The largest difference of one kind of numbers, and what is allowed, both as shares.
struct Worst {
  double share = 0, allowed = 0;
  bool passes() const { return share <= allowed; }
  void add(double new_share, double new_allowed) {
    // The one that lies farthest out in its own measure.
    if (allowed == 0 || new_share * allowed > share * new_allowed) {
      share = new_share;
      allowed = new_allowed;
    }
  }
};

class FirstSteps {
 public:
  FirstSteps(const ForeignBaseline& baseline, SemanticClass semantic_class)
      : baseline_(baseline),
        first_(baseline.seeds[0]),
        is_precise_(semantic_class == SemanticClass::kReassociation && !first_.is_coarse),
        spread_(spread_of(baseline.seeds)) {
    loss_noise_ = noise_of(&RunRecord::losses, [&](size_t) { return spread_; });
    norm_noise_ = noise_of(&RunRecord::gradient_norms,
                           [&](size_t i) { return std::fabs(first_.gradient_norms[i]); });
  }

  /// Whether repeated runs agree there at all.
  bool says_anything() const { return loss_noise_ <= kCoarseLoss && norm_noise_ <= kCoarseNorm; }
  double loss_noise() const { return loss_noise_; }
  double spread() const { return spread_; }

  void compare(const RunRecord& baseline, const RunRecord& candidate) {
    for (size_t i = 0; i < steps_of(baseline.losses, candidate.losses); ++i) {
      const double size = std::fabs(baseline.losses[i]);
      if (!std::isfinite(size) || !(spread_ > 0)) continue;
      const double tight = (kLossOfSpread + kLossOfSize * size / spread_) * growth(i);
      loss_.add(std::fabs(candidate.losses[i] - baseline.losses[i]) / spread_,
                (is_precise_ ? std::min(tight, kCoarseLoss) : kCoarseLoss) + kNoise * loss_noise_);
    }
    for (size_t i = 0; i < steps_of(baseline.gradient_norms, candidate.gradient_norms); ++i) {
      const double size = baseline.gradient_norms[i];
      if (!std::isfinite(size) || size == 0) continue;
      norm_.add(std::fabs(candidate.gradient_norms[i] / size - 1),
                (is_precise_ ? std::min(kNorm * growth(i), kCoarseNorm) : kCoarseNorm) +
                    kNoise * norm_noise_);
    }
  }

  bool passes() const { return loss_.passes() && norm_.passes(); }
  std::string text() const {
    const std::string losses = fmt::format("first losses differ by {} of their spread (allowed {})",
                                           percent(loss_.share),
                                           percent(loss_.allowed));
    if (norm_.allowed == 0) return losses + ", gradient norms were not seen";
    return fmt::format("{}, gradient norms by {} (allowed {})",
                       losses,
                       percent(norm_.share),
                       percent(norm_.allowed));
  }

 private:
  static size_t steps_of(const std::vector<double>& a, const std::vector<double>& b) {
    return std::min({a.size(), b.size(), kFirstSteps});
  }
  static double growth(size_t step) { return std::pow(kGrowth, static_cast<double>(step)); }

  template <typename Scale>
  double noise_of(std::vector<double> RunRecord::* numbers, Scale scale) const {
    const std::vector<double>&a = first_.*numbers, &b = baseline_.again.*numbers;
    double squares = 0, count = 0;
    for (size_t i = 0; i < steps_of(a, b); ++i) {
      const double unit = scale(i), share = (b[i] - a[i]) / unit;
      if (!(unit > 0) || !std::isfinite(share)) continue;
      squares += share * share;
      ++count;
    }
    return count > 0 ? std::sqrt(squares / count) : 0;
  }

  const ForeignBaseline& baseline_;
  const RunRecord& first_;
  bool is_precise_;
  double spread_, loss_noise_ = 0, norm_noise_ = 0;
  Worst loss_, norm_;
};

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
  FirstSteps first(baseline, semantic_class);
  for (size_t i = 0; i < candidates.size(); ++i) first.compare(baseline.seeds[i], candidates[i]);
  // Of other samples the first losses are others.
  const bool is_judged =
      !is_trajectory && !baseline.seeds[0].losses.empty() && first.says_anything();
  GuardOutcome answer;
  if (is_judged && first.spread() > 0 && !first.passes()) {
    answer = guard_failed(first.text());
  } else if (const std::string missing = missing_for(baseline, candidates, margin, is_of_pairs);
             !missing.empty()) {
    answer = guard_open(missing);
  } else {
    answer = judge_later(baseline, candidates, margin, is_of_pairs);
    answer.text += is_judged       ? "; " + first.text()
                   : is_trajectory ? std::string("; its samples are others, so no step is the same")
                                   : fmt::format(
                                         "; first losses differ by {} of their spread from run to "
                                         "run, so they show nothing",
                                         percent(first.loss_noise()));
  }
  if (is_of_pairs) {
    answer.margin = margin.margin;
    answer.power = margin.power;
  }
  return answer;
}

}  // namespace ridge
