// The state of optimize_program() while it goes on.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/tune/foreign_optimize.h"
#include "ridge/tune/foreign_reference.h"
#include "ridge/tune/foreign_runner.h"
#include "ridge/tune/foreign_technique.h"

namespace ridge {

class ForeignOptimizer {
 public:
  ForeignOptimizer(const ForeignOptimizeRequest& request, OptimizeObserver& observer);
  OptimizeResult run();

 private:
  double seconds_left() const;
  double proof_seconds() const;
  double search_seconds_left() const;
  int64_t deadline(double seconds_from_now) const;
  std::unique_ptr<ForeignRunner> open(const ForeignRecipe& recipe) const;
  TrialOptions trial_options(const ForeignRunner& before,
                             const ForeignRunner& after,
                             double most_seconds);
  TrialRecord new_record(std::string_view technique) const;
  void finish(TrialRecord record);

  void find_and_prove();
  /// Runs the program once, and looks at what it does.
  void probe();
  void measure_baseline();
  void tell_parts();

  // foreign_search.cc
  void search();
  TrialRecord record_of(const ForeignProposal& proposal) const;
  /// Why it is not to be tried now, as a verdict with a reason in the record; false: it is.
  bool is_settled(const ForeignProposal& proposal, TrialRecord& record) const;
  bool has_time_to_try() const;
  /// For the pairs of one trial.
  double trial_seconds() const;
  const TrialRecord& try_proposal(const ForeignProposal& proposal, double most_seconds);
  /// The runner with the change, where it is faster, pays and computes the same.
  std::unique_ptr<ForeignRunner> run_trial(const ForeignRecipe& recipe,
                                           double most_seconds,
                                           TrialRecord& record);
  bool is_applied(const ForeignRunner& candidate,
                  const ForeignRecipe& recipe,
                  TrialRecord& record) const;
  double planned_steps(const ForeignRunner& candidate);
  bool pays(const ForeignRunner& candidate, const TrialResult& trial, TrialRecord& record);
  void note_sites();
  void finish_rest(std::span<const ForeignProposal> rest, std::string_view reason);

  // foreign_guard_runs.cc
  int64_t guard_steps();
  double guard_run_seconds();
  /// Two at a time: nothing is timed.
  std::vector<attach::RunRecord> record_runs(const ForeignReference::Runs& runs);
  bool passes_guard(const ForeignRecipe& recipe, TrialRecord& record);

  // foreign_proof.cc
  void prove();
  TrialResult time_proof(TrialRecord& record);
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
  int64_t whole_steps_ = 0;  ///< Of a run of the program from start to end; 0: not seen.
  int64_t guard_steps_ = 0;  ///< Of each run for the guard; 0: not settled yet.
  int64_t timed_ = 0;        ///< Trials that were timed.
  OptimizeResult result_;
};

}  // namespace ridge
