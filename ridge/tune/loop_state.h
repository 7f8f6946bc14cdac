// The state of a tuning loop while it goes on: its seconds, its records, and the best so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/stop.h"
#include "ridge/tune/target.h"

namespace ridge {

/// A trial may take one of these shares of the budget.
inline constexpr double kShortTrialShare = 0.1, kTrialShare = 0.2, kLongTrialShare = 0.35;

struct LoopState {
  /// The costs of timing a pair, where a step of the slower one takes `step_seconds`.
  TimingCosts costs(VariantPair pair, double step_seconds) const;
  /// The costs of timing what is as fast as the best so far, and seconds of a pair of it.
  TimingCosts costs() const { return costs({*best, *best}, target.step_seconds()); }
  double pair_seconds() const { return 4 * costs().block_seconds; }
  /// Seconds to reserve for the proof of what was kept, and those that its blocks take at least.
  double proof_need() const;
  /// Those and, unless `takes_rest`, the seconds of trials without each of what was kept.
  double rest_need() const;
  double proof_block_seconds() const;
  /// Seconds until the search ends, and those until then for a trial of a change of the class, less
  /// what its guard takes.
  double search_seconds_left() const;
  double trial_seconds_left(SemanticClass semantic_class) const;
  /// Seconds of a trial with the fewest pairs that give a verdict.
  double least_trial_seconds() const { return timing_seconds(costs(), kVerdictPairs, 1); }
  bool search_is_over() const;
  std::string search_end_text() const;
  /// A signal came, or the budget is spent: nothing more is begun.
  bool must_end() const { return stop_requested() || budget.left() <= 0; }
  /// The time by now_ns() from which on what is left belongs to the proof.
  int64_t guard_deadline() const { return LoopBudget::deadline(budget.left() - proof_need()); }

  /// The logarithm of the speedup of all that was kept.
  double kept_gain() const;
  /// The best recipe so far, with the change where one is given.
  RecipeText recipe_with(const Change* change = nullptr) const;

  /// Takes an open candidate for the best, which may work until the budget ends.
  void set_best(std::unique_ptr<TunedVariant> variant);

  /// A record of two recipes; `after` is empty where the record changes nothing.
  TrialRecord new_record(std::string_view technique,
                         const RecipeText& before,
                         const RecipeText& after = {}) const;
  const TrialRecord& finish(TrialRecord record);
  bool has_record(std::string_view technique) const;
  /// Every technique without a record gets one.
  void finish_techniques(std::string_view reason);
  void note(std::string text) { result.summary.notes.push_back(std::move(text)); }

  /// Runs `work`, which says whether it succeeded. A failure becomes the record's verdict, and so
  /// does an end of the time, which ends the search.
  bool attempt(TrialRecord& record, const std::function<bool()>& work);
  TrialOptions trial_options(VariantPair pair, double most_seconds) const;
  /// Times both and fills the record, verdict included. Each trial has its share of the error of
  /// acceptance.
  TrialResult time(VariantPair pair, double most_seconds, TrialRecord& record);
  /// Writes the guard's outcome into record and summary; returns whether it passed.
  bool take_guard(TrialRecord& record, const std::function<GuardOutcome()>& guard);

  Target& target;
  const LoopOptions& options;
  OptimizeObserver& observer;
  LoopBudget budget{options.budget_seconds};
  OptimizeResult result{};
  std::unique_ptr<TunedVariant> best{};
  std::vector<Change> kept{};
  RecipeClaim proven{};  ///< The claim of what was kept, once it is proven.
  /// Seconds of a step of the subject as it is, and from its start until it could be timed.
  double baseline_step_seconds = 0, start_seconds = 0;
  double noise = 0.02;  ///< Standard deviation of a pair's logarithm.
  int64_t timed = 0;    ///< Trials that were timed.
  int64_t proof_pairs = kProofPairs;
  /// The change that is tried may take the time of the trials without each of what was kept.
  bool takes_rest = false;
  std::string stopped{};  ///< Why the time ended within a trial; empty: it did not.
};

/// Tries changes until the time of the search is over or none is left; what seemed to gain and has
/// no verdict is tried again at the end, for longer. In a dry run, measures all and lists them in
/// the order in which they would be tried. Each technique has a record afterwards, however it ends.
void search(LoopState& loop);
/// Drops each kept change that gains nothing beside those that were kept after it.
void leave_one_out(LoopState& loop);

}  // namespace ridge
