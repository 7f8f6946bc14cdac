// Which candidate is looked at or tried next, and what becomes of those that are not.
//
// A prediction costs an opening and a second of blocks, a trial ten times that, so candidates are
// not all predicted again after each step. The queue is lazy: the most valuable by what is known so
// far comes first, and only where that is unknown, or was found before its part of the step
// changed, it is looked at and goes back into the queue. What nobody has looked at is supposed to
// gain much, up to its ceiling, as long as looks have taken a small share of the budget, so that a
// first round sees all; and little once they have, so that a small budget is spent on trials. Where
// the other part of the step changed, the prediction is made again from what was measured: no look.
#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/train/device_memory.h"
#include "ridge/train/process_memory.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// Of the budget, for looks.
constexpr double kLookShare = 0.2;

// What is supposed of a candidate that nobody has looked at: while there is time for looks, then.
constexpr double kHopedGain = 2, kModestGain = 1.05;

// What did not look worth a trial before its part changed.
constexpr double kFaintGain = 1.005;

// Plans of a candidate that are in memory at the same time: while it is timed, one beside the best,
// and while it is guarded two more in another process.
constexpr double kPlansAtOnce = 3;

// A ceiling is measured too.
constexpr double kCeilingNoise = 1.03;

std::string key_of(const Technique& technique, const Proposal& proposal) {
  std::string key(technique.name);
  for (const ConfigFlag& change : proposal.changes)
    key += fmt::format(" {}={}", change.key, change.value);
  return key;
}

// Why a part is left as it is.
std::string costs_no_more(Affects affects, const StepCosts& costs) {
  switch (affects) {
    case Affects::kLoading:
      return "loading costs no more";
    case Affects::kLaunching:
      return "launches cost no more";
    case Affects::kTelling:
      return fmt::format(
          "telling costs {:.2g} ms of {:.3g} ms", 1e3 * costs.tell, 1e3 * costs.step);
    case Affects::kBatch:
    case Affects::kComputing:
      break;
  }
  return "computing costs no more";
}

}  // namespace

double Optimizer::batch_room() const {
  const VariantFacts& facts = best_.worker->facts();
  const auto growing = static_cast<double>(facts.planned_bytes - facts.state_bytes);
  const auto free = static_cast<double>(facts.free_device_bytes.value_or(available_bytes()));
  if (free <= 0 || growing <= 0) return kMostGrowth;
  return (free / kPlansAtOnce - static_cast<double>(facts.state_bytes)) / growing;
}

Situation Optimizer::situation() const {
  const TrainConfig& config = best_.config.loaded.config;
  const VariantFacts& facts = best_.worker->facts();
  const auto steps_per_epoch = static_cast<double>(facts.steps_per_epoch);
  return {.config = config,
          .settings = *best_.config.settings,
          .cpus = cpus_,
          .epochs = config.train.steps > 0
                        ? static_cast<double>(config.train.steps) / steps_per_epoch
                        : static_cast<double>(config.train.epochs),
          .epoch_samples = facts.epoch_samples,
          .epoch_steps = facts.steps_per_epoch,
          .batch_room = batch_room(),
          .allow_trajectory = request_.allow_trajectory,
          .micro = facts.micro,
          .token_growth = facts.token_growth,
          .fewest_parts = fewest_parts_,
          .free_device_mib = room_for_plan(facts.free_device_bytes.value_or(0)) >> 20,
          .memory = memory_text_};
}

std::string Optimizer::who_set(const std::vector<ConfigFlag>& changes) const {
  for (const ConfigFlag& change : changes) {
    const auto origin = best_.config.loaded.origins.find(change.key);
    if (origin != best_.config.loaded.origins.end() && origin->second.source > Source::kRecipe)
      return fmt::format("{} is set by {}", change.key, origin->second.where);
    for (const SettingRow& row : setting_rows()) {
      if (row.name != change.key) continue;
      const Settings::Origin setting = best_.config.settings->origin(change.key);
      if (setting.source > Source::kRecipe)
        return fmt::format("{} is set by {}", change.key, setting.where);
    }
  }
  return {};
}

// What the techniques would change now: after a step they may propose other things than before.
void Optimizer::propose() {
  const Situation now = situation();
  for (const Technique& technique : request_.techniques) propose(technique, now);
}

void Optimizer::propose(const Technique& technique, const Situation& now) {
  Proposals proposals = technique.propose(now);
  std::set<std::string> keys;
  for (const Proposal& proposal : proposals.tries) keys.insert(key_of(technique, proposal));
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.technique == &technique && !candidate.is_mended &&
           candidate.proposal.semantic_class != SemanticClass::kTrajectory &&  // goes its own way
           !keys.contains(key_of(technique, candidate.proposal));
  });
  const bool is_kept = std::any_of(kept_.begin(), kept_.end(), [&](const KeptChange& kept) {
    return kept.technique == technique.name;
  });
  if (proposals.is_done && !is_kept && proposed_.insert(std::string(technique.name)).second) {
    TrialRecord record = new_record(technique.name);
    record.verdict = TrialVerdict::kKept;
    record.reason = proposals.reason;
    return finish(std::move(record));
  }
  if (proposals.tries.empty()) reasons_[std::string(technique.name)] = proposals.reason;
  if (is_kept) return;  // it would only take back what it did
  for (Proposal& proposal : proposals.tries) {
    if (!proposed_.insert(key_of(technique, proposal)).second) continue;
    Candidate candidate;
    candidate.technique = &technique;
    candidate.locked = who_set(proposal.changes);
    if (candidate.locked.empty() && !request_.allow_trajectory &&
        proposal.semantic_class == SemanticClass::kTrajectory)
      candidate.locked = "changes the trajectory; allow it by --allow-trajectory";
    candidate.place = proposed_.size();
    candidate.proposal = std::move(proposal);
    candidates_.push_back(std::move(candidate));
  }
}

double Optimizer::ceiling_of(const Candidate& candidate) const {
  switch (candidate.technique->affects) {
    case Affects::kLoading:
      return loading_ceiling(best_.costs);
    case Affects::kLaunching:
      if (batch_) return launching_ceiling(best_.costs, *batch_, best_.worker->facts().micro);
      break;
    case Affects::kTelling:
      return telling_ceiling(best_.costs);
    case Affects::kBatch:
      return batch_ceiling(best_.costs, kMostGrowth);
    case Affects::kComputing:
      break;
  }
  return computing_ceiling(best_.costs);
}

SpeedRange Optimizer::predict(const Candidate& candidate) const {
  StepChange change = *candidate.change;
  if (candidate.loads())
    change.threads_after = best_.costs.threads;
  else
    change.workers_after = best_.costs.workers;
  // No change takes away more than its part, whatever the noise of that part.
  const double most = kCeilingNoise * ceiling_of(candidate);
  StepCosts costs = best_.costs;
  costs.noise = noise_;
  const SpeedRange range = predicted_speedup(costs, change, cpus_);
  return {.low = std::min(range.low, most), .high = std::min(range.high, most)};
}

double Optimizer::trial_seconds(const Candidate& candidate, double gain) const {
  const double longest = kTrialShare * request_.budget_seconds;
  double seconds = std::min(longest, pair_seconds() * pairs_expected(gain, noise_));
  if (candidate.variant.worker == nullptr) seconds += best_.worker->facts().open_seconds;
  if (candidate.proposal.semantic_class != SemanticClass::kBitIdentical)
    seconds += guard_seconds_ > 0 ? guard_seconds_ : kGuardShare * request_.budget_seconds;
  return seconds;
}

bool Optimizer::may_look() const {
  return request_.is_dry || looks_seconds_ < kLookShare * request_.budget_seconds;
}

bool Optimizer::is_by_flag(const Candidate& candidate) const {
  return std::any_of(request_.flags.begin(), request_.flags.end(), [&](const ConfigFlag& flag) {
    return std::any_of(candidate.proposal.changes.begin(),
                       candidate.proposal.changes.end(),
                       [&](const ConfigFlag& change) { return change.key == flag.key; });
  });
}

std::optional<Promise> Optimizer::promise_of(const Candidate& candidate) const {
  const double ceiling = ceiling_of(candidate);
  if (ceiling < kLeastCeiling) return std::nullopt;
  Promise promise{.gain = 1, .seconds = 1, .loads = candidate.loads()};
  if (!candidate.locked.empty()) {
    // It is never tried: what it would gain is told where there is time for that, and where a flag
    // is in the way; the environment reaches the workers too.
    if (candidate.change || !may_look() || !is_by_flag(candidate)) return std::nullopt;
    return promise;
  }
  if (!candidate.change) {
    promise.gain = std::min(ceiling, may_look() ? kHopedGain : kModestGain);
  } else {
    const SpeedRange predicted = predict(candidate);
    const bool is_worth = is_worth_trying(predicted);
    if (!is_worth && !(candidate.is_stale && may_look())) return std::nullopt;
    promise.gain = is_worth ? middle_of(predicted) : kFaintGain;
  }
  promise.seconds = trial_seconds(candidate, promise.gain);
  return promise;
}

std::optional<size_t> Optimizer::next_candidate() const {
  std::vector<Promise> promises;
  std::vector<size_t> of;
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (const std::optional<Promise> promise = promise_of(candidates_[i])) {
      promises.push_back(*promise);
      of.push_back(i);
    }
  const std::optional<size_t> best = most_promising(promises);
  return best ? std::optional(of[*best]) : std::nullopt;
}

// One candidate at most stays open, so that no more than three variants ever have memory.
void Optimizer::hold_most_promising() {
  const std::optional<size_t> next = next_candidate();
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (i != next) candidates_[i].variant.worker.reset();
}

void Optimizer::search() {
  propose();
  while (!search_is_over()) {
    const std::optional<size_t> next = next_candidate();
    if (!next) break;
    if (candidates_[*next].needs_look()) {
      if (!look(candidates_[*next]))
        candidates_.erase(candidates_.begin() + static_cast<int64_t>(*next));
      hold_most_promising();
      continue;
    }
    Candidate candidate = std::move(candidates_[*next]);
    candidates_.erase(candidates_.begin() + static_cast<int64_t>(*next));
    try_candidate(std::move(candidate));
  }
  finish_rest(search_end_text());
}

std::string Optimizer::search_end_text() const {
  if (stop_requested()) return std::string(kWasStopped);
  return no_time_text(kVerdictPairs * pair_seconds(),
                      seconds_left() - std::min(search_seconds_left(), trial_seconds_left()),
                      seconds_left());
}

// For a dry run: what search() would begin with.
void Optimizer::look_at_all() {
  propose();
  for (size_t i = 0; i < candidates_.size() && !search_is_over();) {
    Candidate& candidate = candidates_[i];
    const bool may_tell = candidate.locked.empty() || is_by_flag(candidate);
    const bool is_over = may_tell && ceiling_of(candidate) >= kLeastCeiling && !look(candidate);
    if (is_over)
      candidates_.erase(candidates_.begin() + static_cast<int64_t>(i));
    else
      candidates_[i++].variant.worker.reset();
  }
  for (int place = 1;; ++place) {
    const std::optional<size_t> next = next_candidate();
    if (!next || candidates_[*next].needs_look()) break;
    TrialRecord record = record_of(candidates_[*next]);
    record.reason = fmt::format("dry run: it would be number {} to be tried", place);
    finish(std::move(record));
    candidates_.erase(candidates_.begin() + static_cast<int64_t>(*next));
  }
  finish_rest(kNoTime);
}

// What comes after it goes further in the same direction: the guard would say so again.
void Optimizer::give_up_further(const Candidate& rejected) {
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.technique == rejected.technique && candidate.place > rejected.place;
  });
}

void Optimizer::keep(Candidate candidate, const TrialRecord& record) {
  kept_.push_back({.technique = record.technique,
                   .text = record.change,
                   .changes = candidate.proposal.changes,
                   .semantic_class = record.semantic_class,
                   .gain = record.measured ? record.measured->mid : 1});
  proof_pairs_ = proof_pairs({}, kept_gain(), noise_, record.judged_pairs());
  const bool loads = candidate.loads();
  if (record.semantic_class == SemanticClass::kTrajectory && own_config_.empty()) {
    own_config_ = best_.config.toml;
    own_compute_ = best_.costs.compute;
  }
  best_ = std::move(candidate.variant);
  for (Candidate& other : candidates_) {
    other.variant.worker.reset();  // of a recipe that is no longer the best
    if (other.loads() == loads) other.is_stale = true;
  }
  measure_costs(best_);
  if (!loads) batch_.reset();  // what was known of micro-batches went with the way to compute
  measure_room();
  propose();
}

TrialRecord Optimizer::rest_record(const Candidate& candidate, std::string_view reason) const {
  TrialRecord record = record_of(candidate);
  if (!candidate.locked.empty()) {
    record.reason = candidate.locked;
  } else if (*record.ceiling < kLeastCeiling) {
    record.reason = fmt::format("ceiling {:.2f}: {}",
                                *record.ceiling,
                                costs_no_more(candidate.technique->affects, best_.costs));
  } else if (record.predicted && !is_worth_trying(*record.predicted)) {
    record.verdict = TrialVerdict::kRefused;
    record.reason = "predicted to gain too little for a trial";
  } else {
    record.reason = reason;
  }
  return record;
}

// Every technique has a record, whenever the loop ends, and so has every prediction.
void Optimizer::finish_rest(std::string_view reason) {
  for (const Technique& technique : request_.techniques) {
    for (const Candidate& candidate : candidates_) {
      if (candidate.technique != &technique) continue;
      const bool is_told =
          std::any_of(result_.trials.begin(), result_.trials.end(), [&](const TrialRecord& record) {
            return record.technique == technique.name;
          });
      if (candidate.change || !is_told) finish(rest_record(candidate, reason));
    }
    const bool is_told =
        std::any_of(result_.trials.begin(), result_.trials.end(), [&](const TrialRecord& record) {
          return record.technique == technique.name;
        });
    if (is_told) continue;
    TrialRecord record = new_record(technique.name);
    const auto known = reasons_.find(std::string(technique.name));
    record.reason = known != reasons_.end() ? known->second : std::string(reason);
    finish(std::move(record));
  }
  candidates_.clear();
}

}  // namespace ridge
