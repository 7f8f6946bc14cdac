#include "ridge/tune/loop_state.h"

#include <fmt/format.h>

#include <cmath>

#include "ridge/base/error.h"
#include "ridge/proof/record_trial.h"

namespace ridge {
namespace {

// Trials without one of the changes take longer than the fewest pairs do, for some gain little.
constexpr double kWithoutMargin = 1.5;

// The blocks of a proof take so many seconds at least, or that share of the budget.
constexpr double kProofSeconds = 12, kProofShare = 0.1;

}  // namespace

// ---- seconds ----

TimingCosts LoopState::costs(VariantPair pair, double step_seconds) const {
  return {.start_seconds = std::max(start_seconds, pair.before.open_seconds()),
          .block_seconds = block_seconds(target.trial_options(pair, 0), step_seconds),
          .run_seconds = std::max(pair.before.run_seconds(step_seconds),
                                  pair.after.run_seconds(step_seconds))};
}

double LoopState::proof_block_seconds() const {
  return std::min(kProofSeconds, kProofShare * budget.total());
}

// The subject as it is is the slower one, and sets the length of the blocks.
double LoopState::proof_need() const {
  const TimingCosts timing = costs({*best, *best}, baseline_step_seconds);
  return proof_seconds(timing, proof_pairs, proof_block_seconds()) + target.proof_extra_seconds();
}

// A change that is still to be kept has to be tried without the others, too.
double LoopState::rest_need() const {
  if (kept.empty() || takes_rest) return proof_need();
  const double trials = static_cast<double>(kept.size() + 1) * least_trial_seconds();
  return proof_need() + kWithoutMargin * trials;
}

double LoopState::search_seconds_left() const { return budget.left() - rest_need(); }

double LoopState::trial_seconds_left(SemanticClass semantic_class) const {
  const double guard = target.guard_seconds(semantic_class);
  return std::min(search_seconds_left(), budget.left() - guard - proof_need());
}

// No trial is begun that could only end without a verdict, or with the time of the proof.
bool LoopState::search_is_over() const {
  return stop_requested() || !stopped.empty() ||
         trial_seconds_left(SemanticClass::kBitIdentical) < least_trial_seconds();
}

std::string LoopState::search_end_text() const {
  if (stop_requested()) return std::string(kWasStopped);
  return no_time_text(least_trial_seconds() + target.guard_seconds(SemanticClass::kBitIdentical),
                      budget.left() - search_seconds_left(),
                      budget.left());
}

// ---- the best so far ----

double LoopState::kept_gain() const {
  double gain = 0;
  for (const Change& change : kept) gain += std::log(change.gain);
  return gain;
}

RecipeText LoopState::recipe_with(const Change* change) const {
  std::vector<Change> changes = kept;
  if (change != nullptr) changes.push_back(*change);
  return target.recipe(changes);
}

void LoopState::set_best(std::unique_ptr<TunedVariant> variant) {
  best = std::move(variant);
  best->work_until(budget.end_ns());
}

// ---- records ----

TrialRecord LoopState::new_record(std::string_view technique,
                                  const RecipeText& before,
                                  const RecipeText& after) const {
  TrialRecord record;
  record.technique = technique;
  record.machine = result.summary.machine;
  record.started = utc_time(wall_ns());
  record.recipe_before = before.toml;
  record.recipe = after.toml;
  record.recipe_hash = after.hash;
  return record;
}

const TrialRecord& LoopState::finish(TrialRecord record) {
  record.number = static_cast<int64_t>(result.trials.size()) + 1;
  observer.on_trial(record);
  result.trials.push_back(std::move(record));
  return result.trials.back();
}

bool LoopState::has_record(std::string_view technique) const {
  return std::ranges::find(result.trials, technique, &TrialRecord::technique) !=
         result.trials.end();
}

void LoopState::finish_techniques(std::string_view reason) {
  for (const std::string& technique : target.techniques()) {
    if (has_record(technique)) continue;
    TrialRecord record = new_record(technique, recipe_with());
    record.reason = reason;
    finish(std::move(record));
  }
}

// ---- trials ----

bool LoopState::attempt(TrialRecord& record, const std::function<bool()>& work) {
  const int64_t start = now_ns();
  bool is_done = false;
  try {
    is_done = work();
  } catch (const VariantFailed& error) {
    record.conclude(TrialVerdict::kFailed, error.what());
  } catch (const UserError& error) {
    record.conclude(TrialVerdict::kFailed, error.what());
  } catch (const TrialStopped& stop) {
    stopped = stop.what();
    record.conclude(record.pairs.empty() ? TrialVerdict::kNotTried : TrialVerdict::kUnguarded,
                    stop_requested() ? std::string(kWasStopped)
                    : must_end()     ? stopped
                                 : fmt::format("{}: the {:.0f} s that are left belong to the proof",
                                               kNoTime,
                                               budget.left()));
  }
  record.seconds += static_cast<double>(now_ns() - start) * 1e-9;
  return is_done;
}

TrialOptions LoopState::trial_options(VariantPair pair, double most_seconds) const {
  TrialOptions trial =
      target.trial_options(pair, LoopBudget::deadline(std::min(most_seconds, budget.left())));
  trial.seed = options.seed + result.trials.size();
  return trial;
}

// However many trials there will be: the shares 1/2 + 1/6 + 1/12 + ... sum to 1.
TrialResult LoopState::time(VariantPair pair, double most_seconds, TrialRecord& record) {
  TrialOptions trial = trial_options(pair, most_seconds);
  const auto number = static_cast<double>(++timed);
  trial.judge.accept_error /= number * (number + 1);
  TrialResult timing = compare(pair.before, pair.after, trial);
  record_trial(record, timing, trial.judge);
  return timing;
}

bool LoopState::take_guard(TrialRecord& record, const std::function<GuardOutcome()>& guard) {
  GuardOutcome outcome;
  try {
    outcome = guard();
  } catch (const TrialStopped& stop) {
    if (stop_requested()) throw;
    outcome.can_tell = false;
    outcome.text = fmt::format("the guard had no verdict within the time: {}", stop.what());
  }
  if (!outcome.text.empty()) record.guard = outcome.text;
  if (!outcome.passed) {
    record.conclude(outcome.can_tell ? TrialVerdict::kGuardFailed : TrialVerdict::kUnguarded,
                    outcome.text);
    return false;
  }
  if (outcome.text.empty()) return true;
  OptimizeGuard& told = result.summary.guard;
  const bool is_first = told.verdict != "passed";
  told.text = (is_first ? "" : told.text + "; ") + record.technique + ": " + outcome.text;
  told.verdict = "passed";
  if (outcome.margin) told.margin = outcome.margin, told.power = outcome.power;
  return true;
}

}  // namespace ridge
