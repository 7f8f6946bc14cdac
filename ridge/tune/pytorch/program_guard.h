// The guard of a third-party program's candidates: the runs that are compared, and how long they
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ridge/tune/pytorch/guard_runs.h"
#include "ridge/tune/pytorch/program_meter.h"
#include "ridge/tune/pytorch/reference.h"

namespace ridge {

class ProgramGuard {
 public:
  /// Both must outlive it.
  ProgramGuard(const ForeignTarget& target, const ProgramCosts& costs, int cpus)
      : costs_(costs), cpus_(cpus), at_once_(cpus > 1 ? 2 : 1), runs_(target, at_once_) {}

  /// The program has been probed and a step timed, before all else: each run has as many steps as
  /// its share of the budget allows, and enough for steps of `most_work` times as many samples,
  /// which runs of fewer steps are made for.
  void begin(const LoopView& loop, int64_t most_work);
  /// Seconds that the guard of one more change of the class takes, with the runs of the program as
  /// it is and of controls that it makes first.
  double seconds(SemanticClass semantic_class) const;
  /// ForeignReference::judge() and judge_rest(). VariantFailed where a run fails, TrialStopped with
  /// stop_requested() or at `until_ns` by now_ns().
  GuardOutcome judge(const ForeignRecipe& recipe, SemanticClass semantic_class, int64_t until_ns);
  GuardOutcome judge_rest(const ForeignRecipe& rest, SemanticClass left, int64_t until_ns);

 private:
  std::vector<attach::RunRecord> record(const ForeignReference::Runs& runs);

  const ProgramCosts& costs_;
  int cpus_;
  size_t at_once_;  ///< Runs are not timed, so two go on at once where there are processors.
  GuardRuns runs_;
  OptimizeObserver* observer_ = nullptr;
  std::optional<ForeignReference> reference_;
  int64_t steps_ = 0;     ///< Steps of each run.
  int64_t until_ns_ = 0;  ///< The guard that goes on ends then.
};

}  // namespace ridge
