// The final proof: the program as it is against the program with what was kept.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/proof/record_trial.h"
#include "ridge/proof/report/words.h"
#include "ridge/tune/pytorch/optimizer.h"

namespace ridge {
namespace {

// The blocks of a replay take so many seconds at least.
constexpr double kReplaySeconds = 12;

// Ends of epochs that take longer by more seconds than this are told.
constexpr double kLongerBreak = 0.25;

/// Two processes of one program differ by where their memory lies: so half of the pairs are of
/// others, started anew where there is time for that and for as many pairs until `until_ns`.
void set_proof(TrialOptions& options,
               int64_t least_pairs,
               double least_seconds,
               ForeignRunner& before,
               ForeignRunner& after,
               int64_t until_ns) {
  options.least_pairs = kProofPairs;
  options.least_seconds = least_seconds;
  options.should_stop = [&before,
                         &after,
                         least_pairs,
                         until_ns,
                         stop = options.should_stop,
                         begun_ns = now_ns(),
                         pairs = int64_t{0}]() mutable {
    if (stop()) return true;
    if (++pairs == kProofPairs / 2 + 1 &&
        may_restart({.seconds_left = static_cast<double>(until_ns - now_ns()) * 1e-9,
                     .pairs_seconds = static_cast<double>(now_ns() - begun_ns) * 1e-9,
                     .restart_seconds = before.open_seconds() + after.open_seconds(),
                     .pairs = pairs - 1,
                     .least_pairs = least_pairs})) {
      before.restart();
      after.restart();
    }
    return stop();
  };
}

}  // namespace

TrialResult ForeignOptimizer::time_proof(TrialRecord& record) {
  best_.reset();
  const std::unique_ptr<ForeignRunner> first = open({}, seconds_left());
  best_ = open(best_recipe_, seconds_left());
  TrialOptions options = trial_options(*first, *best_, seconds_left());
  set_proof(options, proof_pairs_, proof_block_seconds(), *first, *best_, deadline(seconds_left()));
  const int64_t start = now_ns();
  const TrialResult trial = compare(*first, *best_, options);
  record_trial(record, trial, options.judge);
  if (trial.pairs.empty()) return trial;
  proof_pair_seconds_ =
      static_cast<double>(now_ns() - start) * 1e-9 / static_cast<double>(trial.pairs.size());
  OptimizeSummary& summary = result_.summary;
  summary.baseline.step_ms = 1e3 * trial.before_seconds;
  summary.result = summary.baseline;
  summary.result.step_ms = 1e3 * trial.after_seconds;
  summary.baseline.measured_bytes = first->memory_bytes();
  summary.result.measured_bytes = best_->memory_bytes();
  summary.baseline.loader_wait_share = wait_share(trial.pairs, &Pair::before);
  summary.result.loader_wait_share = wait_share(trial.pairs, &Pair::after);
  for (VariantSpeed* speed : {&summary.baseline, &summary.result})
    speed->samples_per_s = speed->step_ms > 0 ? 1e3 * speed->step_samples / speed->step_ms : 0;
  for (const attach::KnobFacts& knob : best_->facts().knobs)
    if (knob.seconds >= 0.5)
      summary.notes.push_back(fmt::format("{} costs {:.1f} s once a run, which no step has in it{}",
                                          knob.key,
                                          knob.seconds,
                                          request_.planned_seconds || whole_steps_ > 0
                                              ? ""
                                              : "; it was held against a run of an hour, for no "
                                                "trial saw the program's end (--planned)"));
  if (best_->break_seconds() > first->break_seconds() + kLongerBreak)
    summary.notes.push_back(fmt::format("the end of an epoch takes {:.2f} s longer than before",
                                        best_->break_seconds() - first->break_seconds()));
  return trial;
}

// The gain and noise of the trials are expected where the proof has too few pairs to tell.
std::string ForeignOptimizer::missing_budget(const TrialResult& trial) const {
  const std::optional<double> noise = pair_noise(trial);
  return verdict_budget_text({.pairs = static_cast<int64_t>(trial.pairs.size()) - trial.dropped,
                              .gain = noise ? trial.gain : kept_gain_,
                              .noise = noise.value_or(pair_noise_),
                              .pair_seconds = proof_pair_seconds_},
                             proof_judge(),
                             request_.budget_seconds);
}

void ForeignOptimizer::claim(const TrialRecord& record, const TrialResult& trial) {
  OptimizeSummary& summary = result_.summary;
  if (trial.verdict != Verdict::kFaster || !record.measured) {
    summary.result = summary.baseline;
    summary.notes.push_back(
        fmt::format("what was kept could not be proven again: your program stays as it is ({})",
                    record.reason));
    observer_.on_message(summary.notes.back());
    return;
  }
  summary.claim = {.speedup = record.measured->mid,
                   .low = record.measured->low,
                   .high = record.measured->high,
                   .pairs = record.judged_pairs(),
                   .confidence = kVerdictConfidence};
  best_recipe_.proven = {.version = RIDGE_VERSION,
                         .claim = fmt::format("{} ({:.2f} to {:.2f}, {:.0f} %)",
                                              claim_words(summary.claim),
                                              summary.claim.low,
                                              summary.claim.high,
                                              100 * summary.claim.confidence),
                         .plan = "",
                         .config = command_hash(request_.target.command),
                         .machine = fingerprint_,
                         .command = request_.target.command.text()};
  summary.recipe = to_toml(best_recipe_);
}

void ForeignOptimizer::prove() {
  observer_.on_message("the proof: your program as it is against the recipe, both started anew");
  TrialRecord record = new_record(kProofTechnique);
  const int64_t start = now_ns();
  record.recipe_before.clear();
  record.hypothesis = "what was kept, together, in fresh processes of two starts";
  record.recipe = to_toml(best_recipe_);
  record.recipe_hash = recipe_hash(best_recipe_);
  // Two pairs: one is what timing_seconds() adds for finding out the length of a block.
  proof_pair_seconds_ =
      timing_seconds(timing_costs(*best_, 1e-3 * result_.summary.baseline.step_ms), 1, 0) / 2;
  TrialResult trial;
  try {
    trial = time_proof(record);
  } catch (const ForeignFailed& failure) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = failure.what();
  } catch (const TrialStopped&) {
    // The time ended before the first pair did.
    if (stop_requested()) throw;
  }
  record.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  if (record.verdict != TrialVerdict::kFailed) {
    const bool is_faster = trial.verdict == Verdict::kFaster;
    record.verdict = is_faster                              ? TrialVerdict::kKept
                     : trial.verdict == Verdict::kNotFaster ? TrialVerdict::kNotFaster
                                                            : TrialVerdict::kOpen;
    record.reason = is_faster ? "proven"
                    : trial.verdict == Verdict::kNotFaster
                        ? "not faster when proven again"
                        : open_reason(trial) + "; " + missing_budget(trial);
  }
  claim(record, trial);
  finish(std::move(record));
}

TrialResult replay_program(const TrialRecord& record,
                           const ForeignTarget& target,
                           double seconds,
                           uint64_t seed,
                           RecipeTrust trust) {
  check(!record.recipe.empty() && record.recipe != record.recipe_before,
        "trial {} ({}) changed nothing: there is nothing to prove",
        record.number,
        record.technique);
  const auto recipe = [trust](const std::string& text) {
    return text.empty() ? ForeignRecipe{}
                        : parse_foreign_recipe(text, "the ledger's recipe", trust);
  };
  const int64_t until = now_ns() + static_cast<int64_t>(seconds * 1e9);
  const ForeignRunnerOptions runner{.deadline_ns = until};
  try {
    ForeignRunner before(target, recipe(record.recipe_before), runner);
    ForeignRunner after(target, recipe(record.recipe), runner);
    TrialOptions options = foreign_trial_options(until, seed, before, after);
    options.judge = record.judge;
    set_proof(options, kProofPairs, std::min(kReplaySeconds, seconds / 4), before, after, until);
    return compare(before, after, options);
  } catch (const ForeignFailed& failure) {
    throw UserError(fmt::format("trial {} cannot be run again: {}", record.number, failure.what()));
  } catch (const TrialStopped& stop) {
    throw UserError(fmt::format("trial {} was not proven again: {}", record.number, stop.what()),
                    "give it more time with --budget");
  }
}

}  // namespace ridge
