// The final proof: the configuration as it was against what was kept.
#include <algorithm>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/proof/report/words.h"
#include "ridge/run/backends.h"
#include "ridge/tune/engine/metered_runner.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// Of steps that are traced for the picture of one.
constexpr double kTracedSeconds = 0.3;
constexpr int64_t kTracedSteps = 5;

constexpr const char* kPowercap = "/sys/class/powercap";

}  // namespace

void fill_speed(VariantSpeed& speed, const VariantFacts& facts, double seconds) {
  speed.step_ms = 1e3 * seconds;
  speed.step_samples = samples_per_step(facts);
  speed.samples_per_s = seconds > 0 ? speed.step_samples / seconds : 0;
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

// What a reader who only looks at the claim has to know of it.
void Optimizer::note_trajectory() {
  for (const TrialRecord* step : kept_steps(result_.trials))
    if (step->semantic_class == SemanticClass::kTrajectory)
      result_.summary.notes.push_back(
          fmt::format("{} ({}) makes other updates than your configuration, as --allow-trajectory "
                      "allows: {}",
                      step->technique,
                      step->change,
                      step->guard));
}

// Tracing takes a little time and memory: after what is claimed was measured.
StepTimeline Optimizer::timeline_of(OpenVariant& variant, double step_seconds) const {
  const auto steps = static_cast<int64_t>(kTracedSeconds / std::max(step_seconds, 1e-6));
  try {
    return variant.worker->timeline(std::clamp<int64_t>(steps, 1, kTracedSteps));
  } catch (const WorkerFailed&) {
    return {};
  } catch (const UserError&) {
    return {};
  } catch (const TrialStopped&) {
    return {};
  }
}

// The gain and noise of the trials are expected where the proof has too few pairs to tell.
std::string Optimizer::missing_budget(const TrialResult& trial, double seconds) const {
  const std::optional<double> noise = pair_noise(trial);
  const auto judged = static_cast<int64_t>(trial.pairs.size()) - trial.dropped;
  return verdict_budget_text(
      {.pairs = judged,
       .gain = noise ? trial.gain : kept_gain(),
       .noise = noise.value_or(noise_),
       .pair_seconds = seconds / static_cast<double>(std::max<int64_t>(1, judged))},
      {},
      request_.budget_seconds);
}

// The configuration as it was against what was kept, in processes that know nothing of the search,
// on an epoch that it has not seen.
void Optimizer::prove() {
  best_.worker.reset();
  observer_.on_work("proving what was kept, in fresh processes");
  TrialRecord record = new_record(kProofTechnique);
  const int64_t start = now_ns();
  record.recipe_before = base_.empty() ? "" : to_toml(base_);
  record.hypothesis = "what was kept, together, in fresh processes and on another epoch";
  OpenVariant before = open(base_, 1), after = open(best_.recipe, 1);
  record.recipe = to_toml(best_.recipe);
  record.recipe_hash = recipe_hash(best_.recipe);
  record.plan_hash = after.worker->facts().plan_hash;
  best_.worker = std::move(after.worker);
  TrialOptions options = trial_options(seconds_left() - tracing_seconds() - pair_seconds());
  options.least_pairs = kProofPairs;
  options.least_seconds = proof_block_seconds();
  options.work = work_ratio(before.worker->facts(), best_.worker->facts());
  EnergyMeter meter(kPowercap, make_backend(best_.config.loaded.config.train.device)->gpu_uuid());
  MeteredRunner metered_before(*before.worker, meter), metered_after(*best_.worker, meter);
  const int64_t begun = now_ns();
  const TrialResult trial = compare(metered_before, metered_after, options);
  const double compared_seconds = static_cast<double>(now_ns() - begun) * 1e-9;
  record_trial(record, trial, options.judge);
  record.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  OptimizeSummary& summary = result_.summary;
  // A proof without a pair leaves the step as it was measured before the search.
  const double before_seconds =
      trial.pairs.empty() ? 1e-3 * summary.baseline.step_ms : trial.before_seconds;
  summary.baseline = speed_of(before);
  summary.result = speed_of(best_);
  fill_speed(summary.baseline, before.worker->facts(), before_seconds);
  fill_speed(summary.result, best_.worker->facts(), trial.after_seconds);
  summary.baseline.loader_wait_share = wait_share(trial.pairs, &Pair::before);
  summary.result.loader_wait_share = wait_share(trial.pairs, &Pair::after);
  summary.baseline.joules_per_step = metered_before.joules_per_step();
  summary.result.joules_per_step = metered_after.joules_per_step();
  summary.energy_of = meter.what();
  summary.energy_problem = meter.problem();
  if (meter.problem().empty() && !energy_ratio(summary))
    summary.energy_problem = fmt::format("the counters of {} stood still", meter.what());
  summary.baseline.timeline = timeline_of(before, trial.before_seconds);
  summary.result.timeline = timeline_of(best_, trial.after_seconds);
  if (trial.verdict == Verdict::kFaster && record.measured) {
    record.verdict = TrialVerdict::kKept;
    record.reason = "proven";
    summary.claim = {.speedup = record.measured->mid,
                     .low = record.measured->low,
                     .high = record.measured->high,
                     .pairs = record.judged_pairs(),
                     .confidence = kVerdictConfidence,
                     .per_sample = options.work != 1};
    best_.recipe.proven = {.version = RIDGE_VERSION,
                           .claim = fmt::format("{} ({:.2f} to {:.2f}, {:.0f} %)",
                                                claim_words(summary.claim),
                                                summary.claim.low,
                                                summary.claim.high,
                                                100 * summary.claim.confidence),
                           .plan = record.plan_hash,
                           .config = config_hash(resolve({}).loaded.config),
                           .machine = machine_};
    summary.recipe = to_toml(best_.recipe);
    note_trajectory();
    if (best_.config.loaded.config.loader.cache && !resolve(base_).loaded.config.loader.cache)
      summary.notes.push_back(
          "the claim is of steps from the second epoch on, when samples are in memory");
  } else {
    record.verdict =
        trial.verdict == Verdict::kNotFaster ? TrialVerdict::kNotFaster : TrialVerdict::kOpen;
    record.reason = trial.verdict == Verdict::kNotFaster
                        ? "not faster when proven again"
                        : open_reason(trial) + "; " + missing_budget(trial, compared_seconds);
    summary.result = summary.baseline;
    summary.notes.push_back(fmt::format(
        "what was kept could not be proven again: your configuration stays ({})", record.reason));
  }
  finish(std::move(record));
}

}  // namespace ridge
