// The times of a third-party program: a first run of it, a step of it as it is, and a step with
// what was kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/proof/proof_budget.h"
#include "ridge/tune/pytorch/ceiling.h"
#include "ridge/tune/pytorch/program.h"
#include "ridge/tune/pytorch/runner.h"
#include "ridge/tune/pytorch/step_shares.h"

namespace ridge {

/// The packages that a process may import before the program runs in it
/// (attach::ShimOptions::imports).
struct ProgramImports {
  std::string text{};
  std::string refusal{};  ///< Not empty: no such process is of use, and why.
};

/// The times of a program, as far as they are known by now; 0: not known.
struct ProgramCosts {
  attach::ProcessFacts facts;          ///< Facts of its first run.
  std::optional<StepShares> shares{};  ///< By steps that it recorded, of the program as it is.
  ProgramImports imports{};
  bool has_steps = false;         ///< Its command has {steps} in it.
  double first_step_seconds = 0;  ///< Seconds from the start of that run to its first step.
  double start_seconds = 0;       ///< Seconds from the start of the program until it can be timed.
  int64_t whole_steps = 0;        ///< Steps of a run from start to end; 0: none ended by itself.
  double whole_seconds = 0;       ///< Seconds of such a run.
  double baseline_seconds = 0;    ///< Seconds of a step of the program as it is.
  /// Seconds, at most, that pages of such a step took to be mapped; nothing: not known.
  std::optional<double> fault_seconds{};
  int64_t work = 1;  ///< Samples of a step with what was kept, over those of one without.
  /// Seconds of a step with what was kept, and the share of it that waits for data.
  double step_seconds = 0, wait_share = 0;

  /// Shares of a step with what was kept: parts take no longer than in the program as it is.
  PartShares parts() const;
  /// Seconds of a run that ends after so many steps.
  double run_seconds(int64_t steps) const {
    return start_seconds + static_cast<double>(steps) * step_seconds;
  }
};

/// Samples of a step with the recipe over those of a step without, as the probe of `facts` says.
int64_t work_of(const attach::ProcessFacts& facts, const ForeignRecipe& recipe);

/// Batches that lie ready where the loader of such a step is full, as far as the recipe asks for
/// them; 0: none.
int64_t batches_ahead(const attach::ProcessFacts& facts, const ForeignRecipe& recipe);

/// Runs the program until it has made some steps. VariantFailed where it fails or makes none,
/// TrialStopped with stop_requested().
ProgramCosts probe_program(const ForeignTarget& target, const LoopView& loop);
/// Runs the program with the recipe until it has recorded steps. VariantFailed where it fails or
/// records none, TrialStopped with stop_requested() or at `until_ns` by now_ns().
StepShares examine_program(const ForeignTarget& target,
                           const ForeignRecipe& recipe,
                           int64_t until_ns);
/// Seconds that it takes for what was kept, which can be timed `open_seconds` after its start.
double examination_seconds(const ProgramCosts& costs, double open_seconds);
/// Times a step of the program as it is.
void measure_baseline(ProgramCosts& costs, ForeignRunner& best);

/// The times by which a budget is judged (budget_trouble()): as the first run lets expect them, and
/// once the program as it is was timed. The guard of a change takes `guard_seconds`.
ProgramTimes expected_times(const ProgramCosts& costs);
ProgramTimes measured_times(const ProgramCosts& costs,
                            const ForeignRunner& best,
                            double guard_seconds);

}  // namespace ridge
