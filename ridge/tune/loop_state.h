// The state of `optimize` while it goes on: the best variant so far, and what is known of it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ridge/config/recipe.h"
#include "ridge/proof/proof_budget.h"
#include "ridge/proof/record_trial.h"
#include "ridge/proof/trial_order.h"
#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/engine/worker.h"
#include "ridge/tune/loop.h"
#include "ridge/tune/prediction.h"

namespace ridge {

/// Steps whose state is compared where a change must keep the bits.
inline constexpr int64_t kHashSteps = 2;

/// Of the budget, that a trial may take.
inline constexpr double kShortTrialShare = 0.1, kTrialShare = 0.2, kLongTrialShare = 0.35;

/// What the guard may take of it, as if every step took as long as the reference's.
inline constexpr double kGuardShare = 0.15;

inline constexpr double kProofSeconds = 8, kProofShare = 0.1;  // of its blocks

/// The proof keeps so many seconds for tracing steps for the pictures, or that share of the budget.
inline constexpr double kTracingSeconds = 2.4, kTracingShare = 0.05;

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

/// What a candidate's updates are compared with.
struct GuardReference {
  std::string config;  ///< TOML.
  double seconds = 0;  ///< Of a step of it, on batches in memory.
  double budget = 0;   ///< Seconds for all steps of the guard, as if each took as long.
};

/// One proposal of a technique, and what is known of it.
struct Candidate {
  const Technique* technique = nullptr;
  Proposal proposal;
  size_t place = 0;                  ///< Later proposals of a technique go further.
  bool is_mended = false;            ///< The guard's own proposal.
  std::string locked;                ///< Who set what it would change; empty: nobody.
  std::optional<StepChange> change;  ///< As it was measured; nothing: nobody has looked.
  bool is_stale = false;             ///< What it changes is not as it was then.
  OpenVariant variant;               ///< Without a worker where it is not kept open.
  std::string plan_hash;
  double seconds = 0;  ///< Spent on it so far.

  bool loads() const { return technique->affects == Affects::kLoading; }
  bool needs_look() const { return !change || is_stale; }
};

/// A change of the best recipe so far.
struct KeptChange {
  std::string technique, text;
  std::vector<ConfigFlag> changes;
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  double gain = 1;  ///< When it was kept.
};

class Optimizer {
 public:
  Optimizer(const OptimizeRequest& request, OptimizeObserver& observer);
  OptimizeResult run();

 private:
  double seconds_left() const;
  double pair_seconds() const;
  int64_t least_steps() const;
  double proof_need() const;
  double proof_block_seconds() const;
  double tracing_seconds() const;
  /// Logarithm of the speedup of all that was kept.
  double kept_gain() const;
  double search_seconds_left() const;
  /// Seconds that a trial which has begun may take, so that the proof has the time that it needs.
  double trial_seconds_left() const;
  bool search_is_over() const;
  std::string search_end_text() const;
  int64_t deadline(double seconds_from_now) const;

  ResolvedConfig resolve(const Recipe& recipe) const;
  /// With `over` the recipe wins where a flag sets the same key.
  OpenVariant open(const Recipe& recipe, int64_t epoch, std::span<const ConfigFlag> over = {});
  void start_worker(OpenVariant& variant, int64_t epoch) const;
  void reopen(OpenVariant& variant) const;
  TrialOptions trial_options(double most_seconds) const;
  /// So that of all trials together the error of acceptance is that of one.
  TrialOptions next_trial_options(double most_seconds);
  TrialRecord new_record(std::string_view technique) const;
  void finish(TrialRecord record);

  void find_and_prove();

  // optimize_measure.cc
  int64_t part_steps(WorkerProcess& worker, StepKind kind);
  PartChange measure_change(WorkerProcess& before, WorkerProcess& after, StepKind kind);
  double measure(WorkerProcess& worker, StepKind kind, double* wait_share = nullptr);
  void measure_costs(OpenVariant& variant);
  void note_block_steps(const StepCosts& costs, const VariantFacts& facts);
  void measure_baseline();
  void measure_noise();
  void measure_launches();
  void measure_room();
  void measure_queue();
  void fit_memory();

  // optimize_search.cc
  Situation situation() const;
  double batch_room() const;
  void give_up_further(const Candidate& rejected);
  std::string who_set(const std::vector<ConfigFlag>& changes) const;
  void propose();
  void propose(const Technique& technique, const Situation& now);
  void search();
  void look_at_all();
  bool may_look() const;
  /// Whether a flag sets what it would change.
  bool is_by_flag(const Candidate& candidate) const;
  std::optional<size_t> next_candidate() const;
  /// Nothing where it is neither worth a look nor a trial.
  std::optional<Promise> promise_of(const Candidate& candidate) const;
  double ceiling_of(const Candidate& candidate) const;
  SpeedRange predict(const Candidate& candidate) const;
  double trial_seconds(const Candidate& candidate, double gain) const;
  void hold_most_promising();
  void keep(Candidate candidate, const TrialRecord& record);
  void finish_rest(std::string_view reason);
  TrialRecord rest_record(const Candidate& candidate, std::string_view reason) const;

  // optimize_trial.cc
  TrialRecord record_of(const Candidate& candidate) const;
  /// False where its record is finished: it failed, or is no candidate.
  bool look(Candidate& candidate);
  void try_candidate(Candidate candidate);
  bool run_trial(Candidate& candidate, TrialRecord& record, std::vector<ConfigFlag>& mended);
  Recipe recipe_with(const Candidate& candidate) const;
  void open_candidate(Candidate& candidate);
  /// Where it picks among more kernels: whether it has picked the same ones.
  bool keeps_kernels(const Candidate& candidate) const;
  /// Its own part of the step, beside that of the best.
  void measure_candidate(Candidate& candidate);
  /// False, with the record's verdict, where the trial ends before it is timed.
  bool is_sound(const Candidate& candidate, TrialRecord& record) const;
  bool fits(const OpenVariant& candidate, TrialRecord& record) const;
  bool has_its_parts(const Candidate& candidate, TrialRecord& record) const;
  bool numbers_agree(const OpenVariant& candidate, TrialRecord& record) const;
  void time_candidate(Candidate& candidate, TrialRecord& record);
  double longest_trial(const TrialRecord& record) const;
  /// The guard's verdict on a candidate that is faster; false where it is rejected. `mended` are
  /// changes with which it would pass.
  bool guard_candidate(const GuardReference& reference,
                       OpenVariant& candidate,
                       TrialRecord& record,
                       std::vector<ConfigFlag>& mended);

  /// Whether a device has it for the programs of a guard beside the two that are open.
  bool has_room_to_guard(const OpenVariant& candidate) const;
  GuardReference guard_reference(SemanticClass semantic_class) const;
  /// That the guard of a trajectory may take.
  double trajectory_seconds() const;
  GuardAnswer ask_guard(const GuardReference& reference,
                        const OpenVariant& candidate,
                        SemanticClass semantic_class);

  // optimize_without.cc
  void leave_one_out();
  void try_without(const KeptChange& kept);
  bool time_without(OpenVariant& without, const KeptChange& kept, TrialRecord& record);
  bool may_drop(OpenVariant& without, const KeptChange& kept, TrialRecord& record);

  // optimize_proof.cc
  VariantSpeed speed_of(const OpenVariant& variant) const;
  void prove();
  /// The budget that a proof without a verdict would have taken.
  std::string missing_budget(const TrialResult& trial, double seconds) const;
  /// Of one step, where there is time for it.
  StepTimeline timeline_of(OpenVariant& variant, double step_seconds) const;
  void note_trajectory();

  const OptimizeRequest& request_;
  OptimizeObserver& observer_;
  int64_t start_;
  int cpus_;
  Recipe base_;       ///< What every variant has: a memory limit, or nothing.
  OpenVariant best_;  ///< So far.
  /// The best that made the updates of the user's configuration, once one was kept that does not.
  std::string own_config_;
  double own_compute_ = 0;     ///< Seconds of a step of it, on batches in memory.
  std::string original_hash_;  ///< Of the state of the configuration as it is.
  std::vector<KeptChange> kept_;
  std::vector<Candidate> candidates_;
  std::set<std::string> proposed_;              ///< All that ever were candidates.
  std::map<std::string, std::string> reasons_;  ///< Of techniques with nothing to try.
  std::optional<BatchCosts> batch_;
  int64_t fewest_parts_ = 0;           ///< Of a step, that a device has room for beside the best.
  std::string memory_text_;            ///< What a limit of memory made of the plan.
  double noise_ = 0.02;                ///< Of a pair: standard deviation of its logarithm.
  double looks_seconds_ = 0;           ///< Spent on predictions.
  double guard_seconds_ = 0;           ///< Of the last guard; 0: there was none.
  int64_t timed_ = 0;                  ///< Trials that were timed.
  int64_t proof_pairs_ = kProofPairs;  ///< Pairs that the proof of what was kept takes.
  int64_t block_steps_ = 1;            ///< That a block has at least.
  std::string machine_;
  OptimizeResult result_;
};

}  // namespace ridge
