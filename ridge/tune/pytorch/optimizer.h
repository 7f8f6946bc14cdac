// The state of optimize_program() while it goes on.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/proof/proof_budget.h"
#include "ridge/tune/pytorch/optimize.h"
#include "ridge/tune/pytorch/reference.h"
#include "ridge/tune/pytorch/runner.h"
#include "ridge/tune/pytorch/technique.h"

namespace ridge {

class ForeignOptimizer {
 public:
  ForeignOptimizer(const ForeignOptimizeRequest& request, OptimizeObserver& observer);
  OptimizeResult run();

 private:
  double seconds_left() const;
  /// Costs of timing the best so far against `other`; `step_seconds` is that of the slower one.
  TimingCosts timing_costs(const ForeignRunner& other, double step_seconds) const;
  /// Seconds that the blocks of the proof take at least.
  double proof_block_seconds() const;
  /// Seconds that the proof of what was kept needs.
  double proof_need() const;
  /// Seconds until the search ends: what is left then belongs to the proof.
  double search_seconds_left() const;
  int64_t deadline(double seconds_from_now) const;
  /// The runner's deadline is so many seconds from now.
  std::unique_ptr<ForeignRunner> open(const ForeignRecipe& recipe, double seconds) const;
  TrialOptions trial_options(const ForeignRunner& before,
                             const ForeignRunner& after,
                             double most_seconds);
  JudgeOptions proof_judge() const;
  TrialRecord new_record(std::string_view technique) const;
  void finish(TrialRecord record);

  void find_and_prove();
  /// Runs the program once, and looks at what it does.
  void probe();
  void measure_baseline();
  void tell_parts();
  /// Throws UserError where no verdict can stand within the budget; notes where starts take most.
  void check_budget(const ProgramTimes& times);
  ProgramTimes probed_times() const;
  ProgramTimes measured_times();
  /// Remembers the steps of a run that has ended by itself.
  void note_whole_run(const ForeignRunner& runner);

  // foreign_search.cc
  void search();
  TrialRecord record_of(const ForeignProposal& proposal) const;
  /// Why it is not to be tried now, as a verdict with a reason in the record; false: it is.
  bool is_settled(const ForeignProposal& proposal, TrialRecord& record) const;
  /// Seconds of a start and of the fewest pairs that give a verdict.
  double least_trial_seconds() const;
  /// Seconds that trials may still take, so that guard and proof have theirs.
  double trial_seconds_left();
  bool has_time_to_try();
  std::string no_time_to_try();
  /// "stopped by a signal", or that the rest of the budget belongs to the proof.
  std::string why_stopped(const TrialStopped& stop) const;
  /// For the pairs of one trial.
  double trial_seconds() const;
  /// Notes which budget a trial would have taken that seemed to gain and has no verdict.
  void note_open(const TrialRecord& record);
  const TrialRecord& try_proposal(const ForeignProposal& proposal, double most_seconds);
  /// The runner with the change, where it is faster, pays and computes the same.
  std::unique_ptr<ForeignRunner> run_trial(const ForeignRecipe& recipe,
                                           double most_seconds,
                                           TrialRecord& record);
  bool is_applied(const ForeignRunner& candidate,
                  const ForeignRecipe& recipe,
                  TrialRecord& record) const;
  double planned_steps() const;
  bool pays(const ForeignRunner& candidate, const TrialResult& trial, TrialRecord& record);
  void note_sites();
  void finish_rest(std::span<const ForeignProposal> rest, std::string_view reason);

  // foreign_guard_runs.cc
  int64_t guard_steps();
  double guard_run_seconds();
  /// Seconds of the guard of one more change that is to keep the bits.
  double guard_seconds();
  /// Two at a time: nothing is timed.
  std::vector<attach::RunRecord> record_runs(const ForeignReference::Runs& runs);
  bool passes_guard(const ForeignRecipe& recipe, TrialRecord& record);

  // foreign_proof.cc
  void prove();
  TrialResult time_proof(TrialRecord& record);
  /// The budget that a proof without a verdict would have taken.
  std::string missing_budget(const TrialResult& trial) const;
  void claim(const TrialRecord& record, const TrialResult& trial);

  const ForeignOptimizeRequest& request_;
  OptimizeObserver& observer_;
  int64_t start_;
  ForeignMachine machine_;
  std::string fingerprint_;
  attach::ProcessFacts facts_;  ///< Of the probe.
  ForeignRecipe best_recipe_;
  std::unique_ptr<ForeignRunner> best_;
  double step_seconds_ = 0;   ///< Of the best so far, in a block.
  double wait_share_ = 0;     ///< Of a step of it.
  double start_seconds_ = 0;  ///< From the start of the program until it steps.
  std::optional<ForeignReference> reference_;
  int64_t whole_steps_ = 0;            ///< Steps of a run from start to end; 0: not seen.
  double whole_seconds_ = 0;           ///< Seconds of such a run, where the probe was one.
  double first_step_seconds_ = 0;      ///< Seconds from the start of the probe to its first step.
  int64_t proof_pairs_ = kProofPairs;  ///< Pairs that the proof of what was kept takes.
  double proof_pair_seconds_ = 0;      ///< Seconds of one pair of the proof.
  double kept_gain_ = 0;               ///< Logarithm of the speedup of all that was kept.
  double pair_noise_ = 0;              ///< Deviation of a pair's logarithm in the last kept trial.
  int64_t guard_steps_ = 0;            ///< Of each run for the guard; 0: not settled yet.
  int64_t timed_ = 0;                  ///< Trials that were timed.
  OptimizeResult result_;
};

}  // namespace ridge
