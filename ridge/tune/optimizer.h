// The state of `optimize` while it goes on: the best variant so far, and what is known of it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ridge/train/recipe.h"
#include "ridge/tune/optimize.h"
#include "ridge/tune/prediction.h"
#include "ridge/tune/resolved_config.h"
#include "ridge/tune/worker.h"

namespace ridge {

/// What is predicted to gain less is not tried.
inline constexpr double kWorthTrying = 1.02;

/// Steps whose state is compared where a change must keep the bits.
inline constexpr int64_t kHashSteps = 2;

/// Of the budget, that a trial may take.
inline constexpr double kTrialShare = 0.2;

/// Pairs that the final proof has at least.
inline constexpr int64_t kProofPairs = 12;

/// What was measured, into the record of the trial.
void record_trial(TrialRecord& record, const TrialResult& trial, const JudgeOptions& judge);
/// Why no verdict stands.
std::string open_reason(const TrialResult& trial);
/// `seconds` of a step, and what follows from it.
void fill_speed(VariantSpeed& speed, const VariantFacts& facts, double seconds);

inline double in_mebibytes(int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; }

/// The configuration with a recipe over it, and the process that runs it.
struct OpenVariant {
  Recipe recipe;
  ResolvedConfig config;
  std::unique_ptr<WorkerProcess> worker;
  std::string state_hash;  ///< After the first steps of the epoch.
  StepCosts costs;
};

class Optimizer {
 public:
  Optimizer(const OptimizeRequest& request, OptimizeObserver& observer);
  OptimizeResult run();

 private:
  double seconds_left() const;
  double proof_seconds() const;
  bool search_is_over() const;
  int64_t deadline(double seconds_from_now) const;

  ResolvedConfig resolve(const Recipe& recipe) const;
  OpenVariant open(const Recipe& recipe, int64_t epoch);
  int64_t part_steps(WorkerProcess& worker, StepKind kind);
  std::pair<double, double> measure_both(WorkerProcess& one, WorkerProcess& other, StepKind kind);
  double measure(WorkerProcess& worker, StepKind kind, double* wait_share = nullptr);
  void measure_costs(OpenVariant& variant);
  void measure_baseline();
  void measure_noise();
  void fit_memory();
  bool fits(const OpenVariant& candidate, TrialRecord& record) const;

  void try_technique(const Technique& technique);
  /// What the technique would try, and in the record what that could gain. What the user did not
  /// allow is left out.
  Proposals propose(const Technique& technique, TrialRecord& record) const;
  void try_proposal(const Technique& technique, const Proposal& proposal, TrialRecord record);
  void run_trial(const Technique& technique,
                 const Proposal& proposal,
                 TrialRecord& record,
                 std::vector<ConfigFlag>& mended);
  SpeedRange predict(OpenVariant& candidate, Affects affects);
  /// False, with the record's verdict, where the trial ends before it is timed.
  bool numbers_agree(const OpenVariant& candidate, TrialRecord& record) const;
  void time_candidate(OpenVariant& candidate, TrialRecord& record);
  /// The guard's verdict on a candidate that is faster; false where it is rejected. `mended` are
  /// changes with which it would pass.
  bool guard_candidate(const OpenVariant& candidate,
                       TrialRecord& record,
                       std::vector<ConfigFlag>& mended);
  /// That the guard of a trajectory may take.
  double trajectory_seconds() const;
  std::string who_set(const std::vector<ConfigFlag>& changes) const;
  TrialOptions trial_options(double most_seconds) const;
  void prove();
  void note_trajectory();
  void tell_not_tried(size_t first, const std::string& reason);

  TrialRecord new_record(std::string_view technique) const;
  void finish(TrialRecord record);
  Situation situation() const;
  double batch_room() const;
  VariantSpeed speed_of(const OpenVariant& variant) const;

  const OptimizeRequest& request_;
  OptimizeObserver& observer_;
  int64_t start_;
  int cpus_;
  Recipe base_;       ///< What every variant has: a memory limit, or nothing.
  OpenVariant best_;  ///< So far.
  /// The best that made the updates of the user's configuration, once one was kept that does not.
  std::string own_config_;
  double own_compute_ = 0;  ///< Seconds of a step of it, on batches in memory.
  int64_t timed_ = 0;       ///< Trials that were timed.
  std::string machine_;
  OptimizeResult result_;
};

}  // namespace ridge
