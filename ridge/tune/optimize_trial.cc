// One trial: what it would gain, whether it computes the same, whether it is faster, and what the
// guard says.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "ridge/base/error.h"
#include "ridge/tune/optimizer.h"

namespace ridge {
namespace {

// Of a trial; what is predicted to gain more than kPromise at the least may take longer, what gains
// less at the most is over sooner.
constexpr double kShortTrialShare = 0.1, kLongTrialShare = 0.35;
constexpr double kPromise = 1.1;

// What the guard may take of the budget, as if every step took as long as the reference's.
constexpr double kGuardShare = 0.15;
// Only whole runs tell of a trajectory, and the longer they are the more.
constexpr double kTrajectoryShare = 0.3, kTrajectoryCare = 0.7;

PairRecord record_of(const Pair& pair) {
  const auto& outer = pair.before_outside ? pair.before : pair.after;
  const auto& inner = pair.before_outside ? pair.after : pair.before;
  return {.before_outside = pair.before_outside,
          .dropped = pair.dropped,
          .seconds = {outer[0].seconds, inner[0].seconds, inner[1].seconds, outer[1].seconds},
          .log_ratio = pair.log_ratio()};
}

}  // namespace

void record_trial(TrialRecord& record, const TrialResult& trial, const JudgeOptions& judge) {
  record.judge = judge;
  record.block_steps = trial.steps;
  record.after_block_steps = trial.after_steps;
  record.work = trial.work;
  for (const Pair& pair : trial.pairs) record.pairs.push_back(record_of(pair));
  if (trial.interval)
    record.measured = {.low = std::exp(trial.interval->low),
                       .mid = std::exp(trial.gain),
                       .high = std::exp(trial.interval->high),
                       .confidence = trial.interval->confidence};
}

std::string open_reason(const TrialResult& trial) {
  return fmt::format(
      "no verdict after {} pairs{}",
      trial.pairs.size() - static_cast<size_t>(trial.dropped),
      trial.dropped > 0
          ? fmt::format(" ({} more were dropped: others took CPU time)", trial.dropped)
          : "");
}

void Optimizer::run_trial(const Technique& technique,
                          const Proposal& proposal,
                          TrialRecord& record,
                          std::vector<ConfigFlag>& mended) {
  if (!best_.worker->is_running()) best_ = open(best_.recipe, 0);  // it failed in another trial
  Recipe recipe = best_.recipe;
  for (const ConfigFlag& change : proposal.changes) recipe.set(change.key, change.value);
  record.recipe = to_toml(recipe);
  record.recipe_hash = recipe_hash(recipe);
  OpenVariant candidate = open(recipe, 0);
  record.plan_hash = candidate.worker->facts().plan_hash;
  record.predicted = predict(candidate, technique.affects);
  if (!fits(candidate, record) || !numbers_agree(candidate, record)) return;
  if (record.predicted->high < kWorthTrying) {
    record.verdict = TrialVerdict::kRefused;
    record.reason = "predicted to gain less than 2 %";
    return;
  }
  time_candidate(candidate, record);
  if (record.verdict != TrialVerdict::kKept) return;
  if (record.semantic_class != SemanticClass::kBitIdentical &&
      !guard_candidate(candidate, record, mended))
    return;
  if (record.semantic_class == SemanticClass::kTrajectory && own_config_.empty()) {
    own_config_ = best_.config.toml;
    own_compute_ = best_.costs.compute;
  }
  best_ = std::move(candidate);
  measure_costs(best_);
}

SpeedRange Optimizer::predict(OpenVariant& candidate, Affects affects) {
  StepCosts before = best_.costs;
  const double work = candidate.costs.samples / before.samples;
  candidate.costs.compute = work * before.compute;
  candidate.costs.load = work * before.load;
  if (affects == Affects::kLoading)
    std::tie(before.load, candidate.costs.load) =
        measure_both(*best_.worker, *candidate.worker, StepKind::kLoad);
  else
    std::tie(before.compute, candidate.costs.compute) =
        measure_both(*best_.worker, *candidate.worker, StepKind::kKept);
  return predicted_speedup(before, candidate.costs, cpus_);
}

bool Optimizer::fits(const OpenVariant& candidate, TrialRecord& record) const {
  const int64_t planned = candidate.worker->facts().planned_bytes;
  if (request_.memory_bytes == 0 || planned <= request_.memory_bytes) return true;
  record.verdict = TrialVerdict::kRefused;
  record.reason = fmt::format("it needs {:.1f} MiB: {:.1f} more than there are",
                              in_mebibytes(planned),
                              in_mebibytes(planned - request_.memory_bytes));
  return false;
}

bool Optimizer::numbers_agree(const OpenVariant& candidate, TrialRecord& record) const {
  if (record.semantic_class != SemanticClass::kBitIdentical) return true;
  if (candidate.state_hash == best_.state_hash) {
    record.guard = fmt::format("same bits of the state after {} steps", kHashSteps);
    return true;
  }
  record.verdict = TrialVerdict::kGuardFailed;
  record.reason = record.guard =
      fmt::format("the state after {} steps has other bits: {}, expected {}",
                  kHashSteps,
                  candidate.state_hash,
                  best_.state_hash);
  return false;
}

void Optimizer::time_candidate(OpenVariant& candidate, TrialRecord& record) {
  // What promises more may take longer.
  const double share = record.predicted->low > kPromise    ? kLongTrialShare
                       : record.predicted->high < kPromise ? kShortTrialShare
                                                           : kTrialShare;
  TrialOptions options = trial_options(share * request_.budget_seconds);
  // Of all trials together, however many there will be, the error is that of one: the shares
  // 1/2 + 1/6 + 1/12 + ... sum to 1.
  const auto timed = static_cast<double>(++timed_);
  options.judge.accept_error /= timed * (timed + 1);
  options.work = work_ratio(best_.worker->facts(), candidate.worker->facts());
  const TrialResult trial = compare(*best_.worker, *candidate.worker, options);
  record_trial(record, trial, options.judge);
  switch (trial.verdict) {
    case Verdict::kFaster:
      record.verdict = TrialVerdict::kKept;
      record.reason = "faster";
      break;
    case Verdict::kNotFaster:
      record.verdict = TrialVerdict::kNotFaster;
      record.reason = "not 2 % faster";
      break;
    case Verdict::kOpen:
      record.verdict = TrialVerdict::kOpen;
      record.reason = open_reason(trial);
      break;
  }
}

// What leaves the proof its time, should steps take longer than it seems.
double Optimizer::trajectory_seconds() const {
  const double left = kTrajectoryCare * (seconds_left() - proof_seconds());
  return std::clamp(left, 0.0, kTrajectoryShare * request_.budget_seconds);
}

bool Optimizer::guard_candidate(const OpenVariant& candidate,
                                TrialRecord& record,
                                std::vector<ConfigFlag>& mended) {
  const double seconds = seconds_left();
  WorkerProcess worker(WorkerOptions{
      .program = request_.program, .answer_seconds = seconds, .deadline_ns = deadline(seconds)});
  const bool is_trajectory = record.semantic_class == SemanticClass::kTrajectory;
  // Step after step towards other updates would wear out any margin: the reference is always what
  // made those of the user's configuration.
  const bool is_other = is_trajectory && !own_config_.empty();
  const double most_seconds =
      is_trajectory ? trajectory_seconds() : kGuardShare * request_.budget_seconds;
  const double most_steps = most_seconds / (is_other ? own_compute_ : best_.costs.compute);
  const GuardAnswer answer = worker.guard({.reference = is_other ? own_config_ : best_.config.toml,
                                           .candidate = candidate.config.toml,
                                           .semantic_class = record.semantic_class,
                                           .most_steps = std::llround(most_steps)});
  record.guard = answer.text;
  OptimizeGuard& guard = result_.summary.guard;
  if (answer.passed) {
    guard.text = guard.verdict == "passed" ? guard.text + "; " + answer.text : answer.text;
    guard.verdict = "passed";
    if (answer.margin > 0) {
      guard.margin = answer.margin;
      guard.power = answer.power;
    }
    return true;
  }
  record.verdict = TrialVerdict::kGuardFailed;
  record.reason = answer.text;
  if (!answer.f32_modules.empty()) {
    std::string modules;
    for (const std::string& module : answer.f32_modules)
      modules += (modules.empty() ? "" : ",") + module;
    mended.push_back({"train.f32_modules", modules, "the guard"});
  }
  return false;
}

}  // namespace ridge
