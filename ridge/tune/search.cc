// Which change is measured or tried next, and what becomes of those that are not.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "ridge/proof/trial_order.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// Quick measurements may take this share of the budget.
constexpr double kMeasureShare = 0.2;

// The gain that is supposed of a change that was not measured: while there is time for
// measurements, and afterwards.
constexpr double kHopedGain = 2, kModestGain = 1.05;

// The gain that is supposed of a change that did not look worth a trial before its part changed.
constexpr double kFaintGain = 1.005;

// A change that is predicted to gain more than this factor at the least may take longer, one that
// gains less at the most is over sooner.
constexpr double kPromise = 1.1;

// A trial whose fewest pairs turn out to take longer than planned is begun with this share of their
// time: the variant that is faster makes them shorter.
constexpr double kEnoughOfPairs = 0.75;

// A trial without a verdict for want of pairs is repeated where it seemed to gain this much.
constexpr double kSeemsToGain = 1.02;

constexpr std::string_view kTooLittle = "predicted to gain too little for a trial";

double ceiling_of(const Change& change) { return change.ceiling.value_or(kNoCeiling); }

// A change that may be tried, and the resources that were spent on it.
struct Candidate {
  Change change;
  std::unique_ptr<TunedVariant> variant{};  ///< Open since it was measured; nullptr: not open.
  std::string plan_hash{};
  double seconds = 0;  ///< Seconds spent on it so far.
};

// A quick measurement costs an opening and a second of blocks, a trial ten times that, so changes
// are not all measured again after each step. The queue is lazy: the most valuable by what is
// known so far comes first, and only where that is unknown, or its part of the step has changed
// since, it is measured and goes back into the queue. A change that nobody has measured is
// supposed to gain much, up to its ceiling, as long as measurements have taken a small share of
// the budget, so that a first round sees all; and little afterwards, so that a small budget is
// spent on trials. Changes that no measurement could predict are tried in the order of their
// target.
class Search {
 public:
  explicit Search(LoopState& loop) : loop_(loop) {}

  void run() {
    propose();
    int listed = 0;
    for (auto next = next_in_time(); next;) {
      const bool is_known = !candidates_[*next].change.needs_measurement;
      const bool is_listed = is_known && loop_.options.is_dry;
      if (!is_listed && loop_.search_is_over()) break;
      if (is_listed)
        list(take(*next), ++listed);
      else if (is_known)
        try_candidate(take(*next));
      else if (!measure(candidates_[*next]))
        take(*next);
      // One candidate at most stays open, so that no more than three variants ever have memory.
      next = next_in_time();
      for (size_t i = 0; i < candidates_.size(); ++i)
        if (i != next) candidates_[i].variant.reset();
    }
    loop_.takes_rest = false;
    const std::string reason = loop_.search_end_text();
    try_open_again();
    finish_rest(reason);
  }

  // Every prediction has a record, and so has every technique; `reason` is that of changes that
  // nothing else speaks against.
  void finish_rest(std::string_view reason) {
    for (const Candidate& candidate : std::exchange(candidates_, {})) {
      if (!candidate.change.predicted && loop_.has_record(candidate.change.technique)) continue;
      TrialRecord record = record_of(candidate);
      if (!settle(candidate.change, record)) record.reason = reason;
      loop_.finish(std::move(record));
    }
    loop_.finish_techniques(reason);
  }

 private:
  // After a step the target may propose other changes than before.
  void propose() {
    std::vector<Candidate> known = std::exchange(candidates_, {});
    for (Change& change : loop_.target.changes(loop_.kept, *loop_.best)) {
      if (done_.contains(change.key)) continue;
      const auto had = std::ranges::find(
          known, change.key, [](const Candidate& candidate) { return candidate.change.key; });
      candidates_.push_back(had != known.end() ? std::move(*had) : Candidate{});
      candidates_.back().change = std::move(change);
    }
  }

  // True where the change is not to be tried: its verdict and reason are in the record.
  bool settle(const Change& change, TrialRecord& record) const {
    record.verdict = change.settled_as;
    if (!change.settled.empty())
      record.reason = change.settled;
    else if (change.text.empty())
      record.reason = "it is so already";
    else if (change.semantic_class == SemanticClass::kTrajectory && !loop_.options.allow_trajectory)
      record.reason = "changes the trajectory; allow it by --allow-trajectory";
    else if (ceiling_of(change) < kLeastCeiling)
      record.reason = change.ceiling_text;
    else if (change.predicted && !change.is_rough && !is_worth_trying(*change.predicted)) {
      record.verdict = TrialVerdict::kRefused;
      record.reason = kTooLittle;
    }
    return !record.reason.empty();
  }

  bool may_measure() const {
    return loop_.options.is_dry || measured_seconds_ < kMeasureShare * loop_.budget.total();
  }

  double trial_seconds(const Candidate& candidate, double gain) const {
    const double block =
        std::max(loop_.costs().block_seconds,
                 static_cast<double>(candidate.change.least_steps) * loop_.target.step_seconds());
    const double pairs = 4 * block * pairs_expected(gain, loop_.noise);
    double seconds = std::min(kTrialShare * loop_.budget.total(), pairs);
    if (candidate.variant == nullptr) seconds += loop_.costs().start_seconds;
    return seconds + loop_.target.guard_seconds(candidate.change.semantic_class);
  }

  // A change that nobody could predict is over soon, for it is tried again where it seemed to gain.
  // The last candidate, unless it is known to gain little, has all that the search has left: a
  // clear gain on a noisy machine is not given up beside idle time.
  double longest_trial(const Change& change) const {
    const double total = loop_.budget.total();
    const bool is_known = change.predicted && !change.is_rough;
    if ((!is_known || middle_of(*change.predicted) >= kPromise) && !next_candidate())
      return std::numeric_limits<double>::infinity();
    if (!is_known) return kShortTrialShare * total;
    return total * (change.predicted->low > kPromise    ? kLongTrialShare
                    : change.predicted->high < kPromise ? kShortTrialShare
                                                        : kTrialShare);
  }

  // Nothing where the change is neither worth a measurement nor a trial.
  std::optional<Promise> promise_of(const Candidate& candidate) const {
    const Change& change = candidate.change;
    Promise promise{.gain = 1, .seconds = 1, .loads = change.loads};
    if (change.is_foreseen) {
      const bool is_measured = change.predicted || !may_measure();
      return is_measured || ceiling_of(change) < kLeastCeiling ? std::nullopt
                                                               : std::optional(promise);
    }
    TrialRecord verdict;
    const bool is_settled = settle(change, verdict);
    if (is_settled && verdict.reason != kTooLittle) return std::nullopt;
    if (!change.predicted && !change.needs_measurement) return Promise{.gain = kModestGain};
    if (!change.predicted)
      promise.gain = std::min(ceiling_of(change), may_measure() ? kHopedGain : kModestGain);
    else if (!is_settled)
      promise.gain = middle_of(*change.predicted);
    else if (change.needs_measurement && may_measure())
      promise.gain = kFaintGain;
    else
      return std::nullopt;
    promise.seconds = trial_seconds(candidate, promise.gain);
    return promise;
  }

  // The best candidate that promises at least that factor.
  std::optional<size_t> next_candidate(double least_gain = 0) const {
    std::vector<std::optional<Promise>> promises;
    for (const Candidate& candidate : candidates_) {
      promises.push_back(promise_of(candidate));
      if (promises.back() && promises.back()->gain < least_gain) promises.back().reset();
    }
    return most_promising(promises);
  }

  // A change that promises much is worth more than to learn which of those that were kept could be
  // left out: once their time has begun, it alone may take it.
  std::optional<size_t> next_in_time() {
    loop_.takes_rest = false;
    if (loop_.options.is_dry || !loop_.search_is_over()) return next_candidate();
    loop_.takes_rest = true;
    return next_candidate(kPromise);
  }

  Candidate take(size_t index) {
    const auto at = candidates_.begin() + static_cast<int64_t>(index);
    Candidate candidate = std::move(*at);
    candidates_.erase(at);
    return candidate;
  }

  TrialRecord record_of(const Candidate& candidate) const {
    const Change& change = candidate.change;
    const bool is_change = !change.text.empty();
    TrialRecord record = loop_.new_record(change.technique,
                                          loop_.recipe_with(),
                                          is_change ? loop_.recipe_with(&change) : RecipeText{});
    record.change = change.text;
    record.semantic_class = change.semantic_class;
    record.hypothesis = change.hypothesis;
    record.ceiling = change.ceiling;
    record.predicted = change.predicted;
    record.seconds = candidate.seconds;
    record.plan_hash = candidate.plan_hash;
    return record;
  }

  void list(const Candidate& candidate, int place) {
    TrialRecord record = record_of(candidate);
    record.reason = fmt::format("dry run: it would be number {} to be tried", place);
    loop_.finish(std::move(record));
  }

  // Opens the candidate where it is not open, with the best so far beside it.
  void open(Candidate& candidate) {
    loop_.best->revive();
    if (candidate.variant == nullptr)
      candidate.variant =
          loop_.target.open(loop_.recipe_with(&candidate.change).toml, 0, loop_.guard_deadline());
    candidate.plan_hash = candidate.variant->plan_hash();
  }

  // False where its record is finished: it failed, or is no candidate.
  bool measure(Candidate& candidate) {
    Change& change = candidate.change;
    loop_.observer.on_work(fmt::format("measuring {}", change.technique));
    TrialRecord record = record_of(candidate);
    const bool is_sound = loop_.attempt(record, [&] {
      open(candidate);
      loop_.target.measure(change, {*loop_.best, *candidate.variant});
      change.needs_measurement = false;
      record = record_of(candidate);
      return loop_.target.is_sound(change, {*loop_.best, *candidate.variant}, record);
    });
    measured_seconds_ += record.seconds - candidate.seconds;
    candidate.seconds = record.seconds;
    if (is_sound) return true;
    done_.insert(change.key);
    loop_.finish(std::move(record));
    return false;
  }

  // True where the candidate is sound, faster, pays and passes the guard; then `trial` is its
  // timing.
  bool run_trial(Candidate& candidate,
                 double most_seconds,
                 TrialRecord& record,
                 TrialResult& trial) {
    open(candidate);
    Target& target = loop_.target;
    const VariantPair pair{*loop_.best, *candidate.variant};
    record.plan_hash = candidate.plan_hash;
    if (!target.is_sound(candidate.change, pair, record)) return false;
    // The blocks of a candidate that loads ahead are longer than those of the best so far.
    const double pairs = timing_seconds(loop_.costs(pair, target.step_seconds()), kVerdictPairs, 0);
    const double left = loop_.trial_seconds_left(record.semantic_class);
    if (left < kEnoughOfPairs * pairs) {
      const double rest = loop_.budget.left();
      record.conclude(TrialVerdict::kNotTried,
                      no_time_text(pairs, rest - loop_.search_seconds_left(), rest));
      return false;
    }
    trial = loop_.time(pair, std::min(std::max(most_seconds, pairs), left), record);
    if (trial.verdict != Verdict::kFaster) return false;
    if (std::string why = target.not_paid(pair, trial); !why.empty()) {
      record.conclude(TrialVerdict::kRefused, std::move(why));
      return false;
    }
    // The guard leaves the time for a proof that has the change in it.
    const double noise = pair_noise(trial).value_or(loop_.noise);
    loop_.proof_pairs =
        proof_pairs(record.judge, loop_.kept_gain() + trial.gain, noise, record.judged_pairs());
    const bool passed = loop_.take_guard(
        record, [&] { return target.guard(candidate.change, pair, loop_.guard_deadline()); });
    if (passed) loop_.noise = noise;
    return passed;
  }

  // The trial takes `most_seconds` at most, or as long as it may by its prediction.
  TrialVerdict try_candidate(Candidate candidate, std::optional<double> most_seconds = {}) {
    Change change = candidate.change;
    const double seconds = most_seconds.value_or(longest_trial(change));
    loop_.observer.on_work(fmt::format("trying {}", change.technique));
    done_.insert(change.key);
    TrialRecord record = record_of(candidate);
    TrialResult trial;
    const int64_t pairs_before = loop_.proof_pairs;
    const bool is_kept =
        loop_.attempt(record, [&] { return run_trial(candidate, seconds, record, trial); });
    const TrialRecord& finished = loop_.finish(std::move(record));
    const TrialVerdict verdict = finished.verdict;
    change.gain = finished.measured ? finished.measured->mid : 1;
    if (is_kept) {
      loop_.kept.push_back(change);
      loop_.set_best(std::move(candidate.variant));
      for (Candidate& other : candidates_)
        other.variant.reset();  // of a recipe that is not the best
      loop_.target.keep(change, *loop_.best, trial);
      propose();
      return verdict;
    }
    loop_.proof_pairs = pairs_before;
    if (verdict == TrialVerdict::kOpen && change.gain >= kSeemsToGain) open_.push_back(change);
    if (verdict != TrialVerdict::kGuardFailed && verdict != TrialVerdict::kUnguarded)
      return verdict;
    propose();
    // Later changes of the technique go further in the same direction: the guard would say so
    // again.
    if (change.semantic_class == SemanticClass::kTrajectory)
      std::erase_if(candidates_, [&](const Candidate& other) {
        return other.change.technique == change.technique && other.change.id > change.id &&
               done_.insert(other.change.key).second;
      });
    return verdict;
  }

  // The change that seemed to gain most comes first, each for as long as there is time.
  void try_open_again() {
    std::vector<Change> again = std::exchange(open_, {});
    std::ranges::stable_sort(again, std::greater{}, &Change::gain);
    for (const Change& next : again) {
      if (stop_requested()) return;
      const double seconds = loop_.trial_seconds_left(next.semantic_class);
      if (!loop_.stopped.empty() || seconds < loop_.least_trial_seconds()) return note_open(next);
      loop_.observer.on_message(
          fmt::format("{} is tried again, for longer: it seemed to gain", next.technique));
      if (try_candidate({.change = next}, seconds) == TrialVerdict::kOpen) note_open(next);
    }
  }

  void note_open(const Change& open) {
    const TimingCosts costs = loop_.costs();
    loop_.note(fmt::format(
        "{} seemed to gain, and no time is left to try it for longer: {}",
        open.technique,
        verdict_budget_text({.pairs = 0,
                             .gain = std::log(open.gain),
                             .noise = loop_.noise,
                             .pair_seconds = timing_seconds(costs, 1, 0) / 2,
                             .more_seconds = costs.start_seconds - loop_.search_seconds_left() +
                                             loop_.target.guard_seconds(open.semantic_class)},
                            loop_.target.trial_options({*loop_.best, *loop_.best}, 0).judge,
                            loop_.budget.total())));
  }

  LoopState& loop_;
  std::vector<Candidate> candidates_;
  std::set<std::string> done_;   ///< Keys of changes that are not tried again.
  std::vector<Change> open_;     ///< Changes that seemed to gain, and have no verdict.
  double measured_seconds_ = 0;  ///< Seconds spent on quick measurements.
};

}  // namespace

void search(LoopState& loop) {
  Search search(loop);
  try {
    search.run();
  } catch (const TrialStopped&) {
    search.finish_rest(stop_requested() ? kWasStopped : kNoTime);
    throw;
  }
}

}  // namespace ridge
