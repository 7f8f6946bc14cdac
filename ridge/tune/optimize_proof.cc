// The final proof: the configuration as it was against what was kept.
#include <algorithm>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/tune/optimizer.h"

namespace ridge {
namespace {

constexpr double kProofConfidence = 0.95;

double wait_share(const std::vector<Pair>& pairs, const Block (Pair::*blocks)[2]) {
  double waited = 0, seconds = 0;
  for (const Pair& pair : pairs)
    for (const Block& block : pair.*blocks) {
      waited += block.waited_seconds;
      seconds += block.seconds;
    }
  return seconds > 0 ? std::min(1.0, waited / seconds) : 0;
}

}  // namespace

void fill_speed(VariantSpeed& speed, int64_t batch, double seconds) {
  speed.step_ms = 1e3 * seconds;
  speed.samples_per_s = seconds > 0 ? static_cast<double>(batch) / seconds : 0;
}

VariantSpeed Optimizer::speed_of(const OpenVariant& variant) const {
  VariantSpeed speed;
  speed.config = variant.config.toml;
  speed.planned_bytes = variant.worker->facts().planned_bytes;
  speed.measured_bytes = variant.worker->measured_bytes();
  const VariantFacts& facts = variant.worker->facts();
  speed.memory = {{"state", facts.state_bytes},
                  {"arena", facts.planned_bytes - facts.state_bytes - facts.staging_bytes},
                  {"batches that the loader stages", facts.staging_bytes}};
  return speed;
}

// The configuration as it was against what was kept, in processes that know nothing of the search,
// on an epoch that it has not seen.
void Optimizer::prove() {
  best_.worker.reset();
  TrialRecord record = new_record(kProofTechnique);
  const int64_t start = now_ns();
  record.recipe_before = base_.empty() ? "" : to_toml(base_);
  record.hypothesis = "what was kept, together, in fresh processes and on another epoch";
  OpenVariant before = open(base_, 1), after = open(best_.recipe, 1);
  record.recipe = to_toml(best_.recipe);
  record.recipe_hash = recipe_hash(best_.recipe);
  record.plan_hash = after.worker->facts().plan_hash;
  best_.worker = std::move(after.worker);
  TrialOptions options = trial_options(seconds_left());
  options.least_pairs = kProofPairs;
  const TrialResult trial = compare(*before.worker, *best_.worker, options);
  record_trial(record, trial, options.judge);
  record.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  OptimizeSummary& summary = result_.summary;
  summary.baseline = speed_of(before);
  summary.result = speed_of(best_);
  fill_speed(summary.baseline, best_.worker->facts().batch, trial.before_seconds);
  fill_speed(summary.result, best_.worker->facts().batch, trial.after_seconds);
  summary.baseline.loader_wait_share = wait_share(trial.pairs, &Pair::before);
  summary.result.loader_wait_share = wait_share(trial.pairs, &Pair::after);
  if (trial.verdict == Verdict::kFaster && record.measured) {
    record.verdict = TrialVerdict::kKept;
    record.reason = "proven";
    summary.claim = {.speedup = record.measured->mid,
                     .low = record.measured->low,
                     .high = record.measured->high,
                     .pairs = record.judged_pairs(),
                     .confidence = kProofConfidence};
    best_.recipe.proven = {.version = RIDGE_VERSION,
                           .claim = fmt::format("{:.2f} times as fast ({:.2f} to {:.2f}, {:.0f} %)",
                                                summary.claim.speedup,
                                                summary.claim.low,
                                                summary.claim.high,
                                                100 * summary.claim.confidence),
                           .plan = record.plan_hash,
                           .config = config_hash(resolve({}).loaded.config),
                           .machine = machine_};
    summary.recipe = to_toml(best_.recipe);
    if (best_.config.loaded.config.loader.cache && !resolve(base_).loaded.config.loader.cache)
      summary.notes.push_back(
          "the claim is of steps from the second epoch on, when samples are in memory");
  } else {
    record.verdict =
        trial.verdict == Verdict::kNotFaster ? TrialVerdict::kNotFaster : TrialVerdict::kOpen;
    record.reason =
        trial.verdict == Verdict::kNotFaster ? "not faster when proven again" : open_reason(trial);
    summary.result = summary.baseline;
    summary.notes.push_back("what was kept could not be proven again: your configuration stays");
  }
  finish(std::move(record));
}

}  // namespace ridge
