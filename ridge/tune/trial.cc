// One trial: what it would gain, whether it computes the same, whether it is faster, and what the
// guard says.
#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// What is predicted to gain more than this at the least may take longer, what gains less at the
// most is over sooner.
constexpr double kPromise = 1.1;

// Only whole runs tell of a trajectory, and the longer they are the more.
constexpr double kTrajectoryShare = 0.3, kTrajectoryCare = 0.7;

}  // namespace

TrialRecord Optimizer::record_of(const Candidate& candidate) const {
  TrialRecord record = new_record(candidate.technique->name);
  record.change = change_text(candidate.proposal.changes, situation());
  record.semantic_class = candidate.proposal.semantic_class;
  record.hypothesis = candidate.proposal.hypothesis;
  record.ceiling = ceiling_of(candidate);
  record.seconds = candidate.seconds;
  if (!candidate.change) return record;
  record.predicted = predict(candidate);
  const Recipe recipe = recipe_with(candidate);
  record.recipe = to_toml(recipe);
  record.recipe_hash = recipe_hash(recipe);
  record.plan_hash = candidate.plan_hash;
  return record;
}

Recipe Optimizer::recipe_with(const Candidate& candidate) const {
  Recipe recipe = best_.recipe;
  for (const ConfigFlag& change : candidate.proposal.changes) recipe.set(change.key, change.value);
  return recipe;
}

void Optimizer::open_candidate(Candidate& candidate) {
  reopen(best_);
  candidate.variant = open(recipe_with(candidate), 0, candidate.proposal.changes);
  candidate.plan_hash = candidate.variant.worker->facts().plan_hash;
}

bool Optimizer::keeps_kernels(const Candidate& candidate) const {
  return candidate.proposal.changes[0].key == "train.kernels" &&
         candidate.plan_hash == best_.worker->facts().plan_hash;
}

void Optimizer::measure_candidate(Candidate& candidate) {
  StepChange change{.compute = {},
                    .load = {},
                    .workers_after = candidate.variant.costs.workers,
                    .threads_after = candidate.variant.costs.threads,
                    .work = candidate.variant.costs.samples / best_.costs.samples};
  change.load.log_ratio = std::log(change.work);
  const StepKind kind = candidate.loads() ? StepKind::kLoad : StepKind::kKept;
  (candidate.loads() ? change.load : change.compute) =
      measure_change(*best_.worker, *candidate.variant.worker, kind);
  candidate.change = change;
  StepCosts costs = best_.costs;
  costs.workers = change.workers_after;
  costs.load *= std::exp(change.load.log_ratio);
  costs.compute *= std::exp(change.compute.log_ratio);
  note_block_steps(costs, candidate.variant.worker->facts());
  candidate.is_stale = false;
}

bool Optimizer::look(Candidate& candidate) {
  const int64_t start = now_ns();
  observer_.on_work(fmt::format("looking at {}", candidate.technique->name));
  TrialVerdict verdict = TrialVerdict::kFailed;
  std::string failure;
  try {
    open_candidate(candidate);
    if (keeps_kernels(candidate)) {
      verdict = TrialVerdict::kRefused;
      failure = "the plan stays as it is: no kernel with other bits is faster";
    } else {
      measure_candidate(candidate);
    }
  } catch (const WorkerFailed& error) {
    failure = error.what();
  } catch (const UserError& error) {
    failure = error.what();
  }
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  candidate.seconds += seconds;
  looks_seconds_ += seconds;
  TrialRecord record = record_of(candidate);
  if (failure.empty() && is_sound(candidate, record)) return true;
  if (!failure.empty()) {
    record.verdict = verdict;
    record.reason = failure;
  }
  finish(std::move(record));
  return false;
}

void Optimizer::try_candidate(Candidate candidate) {
  const int64_t start = now_ns();
  observer_.on_work(fmt::format("trying {}", candidate.technique->name));
  TrialRecord record = record_of(candidate);
  std::vector<ConfigFlag> mended;
  bool is_kept = false;
  try {
    is_kept = run_trial(candidate, record, mended);
  } catch (const WorkerFailed& error) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = error.what();
  } catch (const UserError& error) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = error.what();
  } catch (const TrialStopped& stop) {
    record.verdict = record.pairs.empty() ? TrialVerdict::kNotTried : TrialVerdict::kUnguarded;
    record.reason = stop.what();
    finish(std::move(record));
    throw;
  }
  record.seconds += static_cast<double>(now_ns() - start) * 1e-9;
  finish(record);
  if (is_kept) return keep(std::move(candidate), record);
  if (record.semantic_class == SemanticClass::kTrajectory &&
      (record.verdict == TrialVerdict::kGuardFailed || record.verdict == TrialVerdict::kUnguarded))
    give_up_further(candidate);
  if (mended.empty() || candidate.is_mended) return;
  candidate.proposal.changes.insert(candidate.proposal.changes.end(), mended.begin(), mended.end());
  candidate.proposal.hypothesis += "; the guard passes it with some modules in f32";
  candidate.is_mended = candidate.is_stale = true;
  candidate.variant.worker.reset();
  candidate.seconds = 0;
  candidates_.push_back(std::move(candidate));
}

// True where it is faster and passes the guard.
bool Optimizer::run_trial(Candidate& candidate,
                          TrialRecord& record,
                          std::vector<ConfigFlag>& mended) {
  reopen(best_);
  if (candidate.variant.worker == nullptr) {
    open_candidate(candidate);
    record.plan_hash = candidate.plan_hash;
  }
  if (!is_sound(candidate, record)) return false;
  time_candidate(candidate, record);
  if (record.verdict != TrialVerdict::kKept) return false;
  return record.semantic_class == SemanticClass::kBitIdentical ||
         guard_candidate(guard_reference(record.semantic_class), candidate.variant, record, mended);
}

bool Optimizer::is_sound(const Candidate& candidate, TrialRecord& record) const {
  return fits(candidate.variant, record) && has_its_parts(candidate, record) &&
         (!candidate.locked.empty() || numbers_agree(candidate.variant, record));
}

// A limit of memory may ask for more micro-batches than are proposed.
bool Optimizer::has_its_parts(const Candidate& candidate, TrialRecord& record) const {
  const int64_t micro = candidate.variant.worker->facts().micro;
  for (const ConfigFlag& change : candidate.proposal.changes) {
    if (change.key != "train.micro" || change.value == fmt::format("{}", micro)) continue;
    record.verdict = TrialVerdict::kRefused;
    record.reason = fmt::format("the limit of memory asks for {} micro-batches", micro);
    return false;
  }
  return true;
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

// What promises more may take longer, and what is likely to gain and the last of its kind may have
// all that the search has left: a clear gain on a noisy machine is not given up beside idle time.
double Optimizer::longest_trial(const TrialRecord& record) const {
  const double share = record.predicted->low > kPromise    ? kLongTrialShare
                       : record.predicted->high < kPromise ? kShortTrialShare
                                                           : kTrialShare;
  const double seconds = std::min(share * request_.budget_seconds, trial_seconds_left());
  if (middle_of(*record.predicted) < kPromise || next_candidate()) return seconds;
  const bool is_guarded = record.semantic_class != SemanticClass::kBitIdentical;
  const double guard = is_guarded ? kGuardShare * request_.budget_seconds : 0;
  return std::max(seconds, search_seconds_left() - guard);
}

void Optimizer::time_candidate(Candidate& candidate, TrialRecord& record) {
  TrialOptions options = next_trial_options(longest_trial(record));
  options.work = work_ratio(best_.worker->facts(), candidate.variant.worker->facts());
  const TrialResult trial = compare(*best_.worker, *candidate.variant.worker, options);
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
  const double left = kTrajectoryCare * (seconds_left() - proof_need());
  return std::clamp(left, 0.0, kTrajectoryShare * request_.budget_seconds);
}

// Step after step towards other updates would wear out any margin: their reference is always what
// made those of the user's configuration.
GuardReference Optimizer::guard_reference(SemanticClass semantic_class) const {
  const bool is_trajectory = semantic_class == SemanticClass::kTrajectory;
  const bool is_other = is_trajectory && !own_config_.empty();
  return {.config = is_other ? own_config_ : best_.config.toml,
          .seconds = is_other ? own_compute_ : best_.costs.compute,
          .budget = is_trajectory ? trajectory_seconds() : kGuardShare * request_.budget_seconds};
}

// Reference, candidate, and an oracle whose numbers are twice as long.
bool Optimizer::has_room_to_guard(const OpenVariant& candidate) const {
  const VariantFacts& facts = candidate.worker->facts();
  const int64_t needed = facts.planned_bytes + 3 * best_.worker->facts().planned_bytes;
  return facts.free_device_bytes.value_or(needed) >= needed;
}

bool Optimizer::guard_candidate(const GuardReference& reference,
                                OpenVariant& candidate,
                                TrialRecord& record,
                                std::vector<ConfigFlag>& mended) {
  const bool makes_room = !has_room_to_guard(candidate);
  if (makes_room) {
    best_.worker->end();
    candidate.worker->end();
  }
  GuardAnswer answer;
  try {
    answer = ask_guard(reference, candidate, record.semantic_class);
  } catch (const TrialStopped& stop) {
    if (stop_requested()) throw;
    record.verdict = TrialVerdict::kUnguarded;
    record.reason = fmt::format("the guard had no verdict within the time: {}", stop.what());
    return false;
  }
  if (makes_room && answer.passed) {
    reopen(best_);
    reopen(candidate);
  }
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
  record.verdict = answer.can_tell ? TrialVerdict::kGuardFailed : TrialVerdict::kUnguarded;
  record.reason = answer.text;
  if (!answer.f32_modules.empty()) {
    std::string modules;
    for (const std::string& module : answer.f32_modules)
      modules += (modules.empty() ? "" : ",") + module;
    mended.push_back({"train.f32_modules", modules, "the guard"});
  }
  return false;
}

// What was kept before must still be proven: the guard leaves the time for that.
GuardAnswer Optimizer::ask_guard(const GuardReference& reference,
                                 const OpenVariant& candidate,
                                 SemanticClass semantic_class) {
  const int64_t start = now_ns();
  const double seconds = std::max(0.1, seconds_left() - proof_need());
  WorkerProcess worker(WorkerOptions{
      .program = request_.program, .answer_seconds = seconds, .deadline_ns = deadline(seconds)});
  const double most_steps = reference.budget / reference.seconds;
  const GuardAnswer answer = worker.guard({.reference = reference.config,
                                           .candidate = candidate.config.toml,
                                           .semantic_class = semantic_class,
                                           .most_steps = std::llround(most_steps)});
  guard_seconds_ = static_cast<double>(now_ns() - start) * 1e-9;
  return answer;
}

}  // namespace ridge
