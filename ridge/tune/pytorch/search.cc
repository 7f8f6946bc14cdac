// Which change is tried, and what becomes of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ranges>
#include <utility>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stats.h"
#include "ridge/base/stop.h"
#include "ridge/proof/record_trial.h"
#include "ridge/tune/pytorch/optimizer.h"

namespace ridge {
namespace {

// The user's own run, where nobody says and none has ended.
constexpr double kPlannedSeconds = 3600;

// Of the budget, for the pairs of one trial.
constexpr double kTrialShare = 0.1;
constexpr double kLeastTrialSeconds = 6, kMostTrialSeconds = 60;

// A trial whose fewest pairs turn out to take longer than planned is begun with this share of their
// time: the variant that is faster makes them shorter.
constexpr double kEnoughOfPairs = 0.75;

// Of a trial. What has no verdict for want of pairs is tried again where it seemed to gain so much.
constexpr double kAcceptError = 0.025, kSeemsToGain = 1.02;

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

double once_seconds(const attach::ProcessFacts& facts) {
  double seconds = 0;
  for (const attach::KnobFacts& knob : facts.knobs) seconds += knob.seconds;
  return seconds;
}

}  // namespace

TrialRecord ForeignOptimizer::record_of(const ForeignProposal& proposal) const {
  TrialRecord record = new_record(proposal.technique);
  record.semantic_class = proposal.semantic_class;
  record.hypothesis = proposal.hypothesis;
  record.ceiling = ceiling_of(proposal, wait_share_);
  if (!proposal.refusal.empty()) return record;
  const ForeignRecipe recipe = with_proposal(best_recipe_, proposal);
  record.change = change_text(best_recipe_, recipe);
  record.recipe = to_toml(recipe);
  record.recipe_hash = recipe_hash(recipe);
  return record;
}

bool ForeignOptimizer::is_settled(const ForeignProposal& proposal, TrialRecord& record) const {
  record.verdict = TrialVerdict::kRefused;
  if (!proposal.refusal.empty()) {
    record.reason = proposal.refusal;
    return true;
  }
  if (proposal.semantic_class == SemanticClass::kTrajectory && !request_.allow_trajectory) {
    record.reason = "it makes another trajectory: only with --allow-trajectory";
    return true;
  }
  record.verdict = TrialVerdict::kNotTried;
  if (record.change.empty()) {
    record.reason = "it is so already";
    return true;
  }
  if (record.ceiling && *record.ceiling < kLeastCeiling) {
    record.reason = fmt::format("it could gain a factor of {:.3f} at most", *record.ceiling);
    return true;
  }
  if (request_.is_dry) {
    record.reason = "a dry run tries nothing";
    return true;
  }
  return false;
}

void ForeignOptimizer::finish_rest(std::span<const ForeignProposal> rest, std::string_view reason) {
  for (const ForeignProposal& proposal : rest) {
    TrialRecord record = record_of(proposal);
    if (!is_settled(proposal, record)) record.reason = reason;
    finish(std::move(record));
  }
}

void ForeignOptimizer::search() {
  const std::vector<ForeignProposal> proposals = foreign_proposals(facts_, machine_, variable);
  struct Open {
    double gain = 1;
    const ForeignProposal* proposal = nullptr;
    size_t trial = 0;
  };
  std::vector<Open> open;
  for (size_t i = 0; i < proposals.size(); ++i) {
    TrialRecord record = record_of(proposals[i]);
    if (is_settled(proposals[i], record)) {
      finish(std::move(record));
      continue;
    }
    if (!has_time_to_try()) {
      finish_rest(std::span(proposals).subspan(i), no_time_to_try());
      break;
    }
    try {
      const TrialRecord& tried = try_proposal(proposals[i], trial_seconds());
      if (tried.verdict == TrialVerdict::kOpen && tried.measured &&
          tried.measured->mid >= kSeemsToGain)
        open.push_back({tried.measured->mid, &proposals[i], result_.trials.size() - 1});
    } catch (const TrialStopped& stop) {
      finish_rest(std::span(proposals).subspan(i + 1), why_stopped(stop));
      if (stop_requested()) throw;
      return;
    }
  }
  // What seemed to gain most first, each for as long as there is time.
  std::ranges::stable_sort(open, std::greater{}, &Open::gain);
  for (const auto& [gain, proposal, trial] : open) {
    if (!has_time_to_try()) return note_open(result_.trials[trial]);
    observer_.on_message(
        fmt::format("{} is tried again, for longer: it seemed to gain", proposal->technique));
    try {
      const TrialRecord& tried = try_proposal(*proposal, trial_seconds_left());
      if (tried.verdict == TrialVerdict::kOpen) note_open(tried);
    } catch (const TrialStopped&) {
      if (stop_requested()) throw;
      return;
    }
  }
}

double ForeignOptimizer::least_trial_seconds() const {
  return std::max(start_seconds_ + kLeastTrialSeconds,
                  timing_seconds(timing_costs(*best_, step_seconds_), kVerdictPairs, 1));
}

double ForeignOptimizer::trial_seconds_left() {
  return std::min(search_seconds_left(), seconds_left() - guard_seconds() - proof_need());
}

bool ForeignOptimizer::has_time_to_try() { return trial_seconds_left() >= least_trial_seconds(); }

std::string ForeignOptimizer::no_time_to_try() {
  return no_time_text(least_trial_seconds() + guard_seconds(),
                      seconds_left() - search_seconds_left(),
                      seconds_left());
}

std::string ForeignOptimizer::why_stopped(const TrialStopped& stop) const {
  if (stop_requested()) return std::string(kWasStopped);
  if (seconds_left() <= 0) return stop.what();
  return fmt::format("{}: the {:.0f} s that are left belong to the proof", kNoTime, seconds_left());
}

double ForeignOptimizer::trial_seconds() const {
  const double pairs = timing_seconds(timing_costs(*best_, step_seconds_), kVerdictPairs, 0);
  return std::max(
      pairs,
      std::clamp(kTrialShare * request_.budget_seconds, kLeastTrialSeconds, kMostTrialSeconds));
}

void ForeignOptimizer::note_open(const TrialRecord& record) {
  const Judge judge = judge_again(record);
  const double noise =
      judge.log_ratios().size() < 3 ? 0 : 1.4826 * median_absolute_deviation(judge.log_ratios());
  const TimingCosts costs = timing_costs(*best_, step_seconds_);
  const double more = costs.start_seconds + guard_seconds() - search_seconds_left();
  result_.summary.notes.push_back(
      fmt::format("{} seemed to gain, and no time is left to try it for longer: {}",
                  record.technique,
                  verdict_budget_text({.pairs = 0,
                                       .gain = judge.centre(),
                                       .noise = noise,
                                       .pair_seconds = timing_seconds(costs, 1, 0) / 2,
                                       .more_seconds = more},
                                      record.judge,
                                      request_.budget_seconds)));
}

const TrialRecord& ForeignOptimizer::try_proposal(const ForeignProposal& proposal,
                                                  double most_seconds) {
  const int64_t start = now_ns();
  observer_.on_work(fmt::format("trying {}", proposal.technique));
  TrialRecord record = record_of(proposal);
  const ForeignRecipe recipe = with_proposal(best_recipe_, proposal);
  std::unique_ptr<ForeignRunner> kept;
  const auto take_time = [&] { record.seconds = static_cast<double>(now_ns() - start) * 1e-9; };
  try {
    kept = run_trial(recipe, most_seconds, record);
  } catch (const ForeignFailed& failure) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = failure.what();
  } catch (const TrialStopped& stop) {
    record.verdict = record.pairs.empty() ? TrialVerdict::kNotTried : TrialVerdict::kUnguarded;
    record.reason = why_stopped(stop);
    take_time();
    finish(std::move(record));
    throw;
  }
  take_time();
  if (kept != nullptr) {
    best_recipe_ = recipe;
    best_ = std::move(kept);
    note_sites();
  }
  finish(std::move(record));
  return result_.trials.back();
}

// Where the calls stand that the kept knobs are about.
void ForeignOptimizer::note_sites() {
  for (const attach::KnobFacts& knob : best_->facts().knobs)
    if (!knob.site.empty()) best_recipe_.sites[knob.key] = knob.site;
}

bool ForeignOptimizer::is_applied(const ForeignRunner& candidate,
                                  const ForeignRecipe& recipe,
                                  TrialRecord& record) const {
  for (const attach::KnobFacts& knob : candidate.facts().knobs) {
    if (recipe.get(knob.key).empty() || knob.state == "applied") continue;
    record.verdict = TrialVerdict::kRefused;
    record.reason = knob.state == "refused" ? fmt::format("{}: {}", knob.key, knob.text)
                                            : fmt::format("{}: what it is for did not come{}{}",
                                                          knob.key,
                                                          knob.text.empty() ? "" : ": ",
                                                          knob.text);
    return false;
  }
  return true;
}

// Of the user's own run.
double ForeignOptimizer::planned_steps() const {
  if (!request_.planned_seconds && whole_steps_ > 0) return static_cast<double>(whole_steps_);
  const double step_seconds = 1e-3 * result_.summary.baseline.step_ms;
  return request_.planned_seconds.value_or(kPlannedSeconds) / std::max(step_seconds, 1e-9);
}

// What it costs once has to come back within the run that is planned.
bool ForeignOptimizer::pays(const ForeignRunner& candidate,
                            const TrialResult& trial,
                            TrialRecord& record) {
  const double once = once_seconds(candidate.facts()) - once_seconds(best_->facts());
  if (!record.measured || once <= 0) return true;
  const double run = planned_steps() * trial.before_seconds;
  const double saved = run * (1 - 1 / record.measured->mid);
  if (saved > once) return true;
  record.verdict = TrialVerdict::kNotFaster;
  record.reason =
      fmt::format("it costs {:.1f} s once and would save {:.1f} s of a run of {:.0f} s (--planned)",
                  once,
                  saved,
                  run);
  return false;
}

std::unique_ptr<ForeignRunner> ForeignOptimizer::run_trial(const ForeignRecipe& recipe,
                                                           double most_seconds,
                                                           TrialRecord& record) {
  std::unique_ptr<ForeignRunner> candidate = open(recipe, seconds_left() - proof_need());
  if (!is_applied(*candidate, recipe, record)) return nullptr;
  // Blocks of a candidate that loads ahead are longer than those of the best so far.
  const double pairs = timing_seconds(timing_costs(*candidate, step_seconds_), kVerdictPairs, 0);
  if (trial_seconds_left() < kEnoughOfPairs * pairs) {
    record.verdict = TrialVerdict::kNotTried;
    record.reason = no_time_text(pairs, seconds_left() - search_seconds_left(), seconds_left());
    return nullptr;
  }
  ++timed_;
  TrialOptions options = trial_options(
      *best_, *candidate, std::min(std::max(most_seconds, pairs), trial_seconds_left()));
  // However many trials there will be, what they keep is proven together, by an error of its own.
  options.judge.accept_error = kAcceptError;
  const TrialResult trial = compare(*best_, *candidate, options);
  record_trial(record, trial, options.judge);
  note_whole_run(*best_);
  note_whole_run(*candidate);
  if (trial.verdict != Verdict::kFaster) {
    const bool is_open = trial.verdict == Verdict::kOpen;
    record.verdict = is_open ? TrialVerdict::kOpen : TrialVerdict::kNotFaster;
    record.reason = is_open ? open_reason(trial) : "not faster";
    return nullptr;
  }
  if (!pays(*candidate, trial, record)) return nullptr;
  // The guard leaves the time for a proof that has the change in it.
  const double noise = pair_noise(trial).value_or(pair_noise_);
  const int64_t pairs_before = std::exchange(
      proof_pairs_,
      proof_pairs(proof_judge(), kept_gain_ + trial.gain, noise, record.judged_pairs()));
  if (!passes_guard(recipe, record)) {
    proof_pairs_ = pairs_before;
    return nullptr;
  }
  kept_gain_ += trial.gain;
  pair_noise_ = noise;
  record.verdict = TrialVerdict::kKept;
  record.reason = "faster";
  step_seconds_ = trial.after_seconds;
  wait_share_ = wait_share(trial.pairs, &Pair::after);
  return candidate;
}

}  // namespace ridge
