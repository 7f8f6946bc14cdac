// One variant of a third-party program, held between steps, so that compare() (trial.h) can time
// two of them in turn. While it is held all of its processes are stopped: it costs the other
// nothing.
#pragma once

#include <sys/types.h>

#include <memory>

#include "ridge/proof/trial.h"
#include "ridge/tune/pytorch/program.h"

namespace ridge {

/// Seconds of a block of the slower variant, at least.
inline constexpr double kForeignBlockSeconds = 0.2;

/// Steps of a block at the least, where a loader makes so many batches ahead: those that lie ready
/// are then few beside those that are made.
int64_t least_block_steps(int64_t batches_ahead);

struct ForeignRunnerOptions {
  int64_t warm_steps = 5;      ///< Before the first block, so many at least, and
  double warm_seconds = 1;     ///< so many seconds of them.
  double start_seconds = 120;  ///< It has to come to a step within.
  double block_seconds = 120;  ///< So long without a step, and it hangs.
  int64_t deadline_ns = 0;     ///< By now_ns(): TrialStopped; 0: none.
  int64_t whole_steps = 0;     ///< Steps of a whole run, from start to end; 0: not known.
};

class ForeignRunner final : public TunedVariant {
 public:
  /// Starts the program and waits until it is warm and held: a compiler that it was given is done,
  /// and steps do not become faster. VariantFailed where it comes to no step (with what was looked
  /// for), TrialStopped with stop_requested() or at the deadline.
  ForeignRunner(const ForeignTarget& target,
                const ForeignRecipe& recipe,
                const ForeignRunnerOptions& options);
  ~ForeignRunner() override;

  /// The program runs for so many steps and is held again, with all its processes. Intervals in
  /// which it iterated a loader anew, saved, or put a module back into training are no steps of the
  /// block: they are counted apart. A program that ends is started again, and the block with it; a
  /// block that is longer than the program is put together of several runs. VariantFailed where it
  /// fails.
  Block run(int64_t steps) override;

  /// Whether blocks have the steps that save, and go from one of them to another. Both variants of
  /// a trial do as the other.
  void time_saves(bool saves_are_timed);

  /// Another process in the place of this one, as the constructor starts it.
  void restart();
  void revive() override;
  void work_until(int64_t until_ns) override;

  /// Steps that a block has to have for loading ahead to be timed as it runs.
  int64_t least_steps() const;
  /// Facts of the held process.
  attach::ProcessFacts facts() const;
  /// Seconds from its start until it was warm, the last time.
  double open_seconds() const override;
  double run_seconds(double step_seconds) const override;
  const ForeignRecipe& recipe() const;
  /// Intervals that were no steps: how many by now, and what one costs (the median) beyond the
  /// steps that are made in it, in seconds: an epoch of n steps takes n steps' time and this.
  int64_t breaks() const;
  double break_seconds() const;
  /// Steps of a whole run, as the last one that ended by itself had; 0: not known.
  int64_t whole_steps() const;
  /// The process of the command itself, from which all others descend.
  pid_t pid() const;
  /// The most memory that all its processes had resident (tree_memory.h).
  int64_t peak_bytes() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Seconds for which a run of so many steps can be timed, behind its warm-up, before the program
/// ends by itself and has to be started again.
double timed_run_seconds(int64_t steps,
                         double step_seconds,
                         const ForeignRunnerOptions& options = {});

/// trial_until() for compare() of two such variants: blocks that are long against what letting a
/// program go costs, and against what its loaders have ready.
TrialOptions foreign_trial_options(int64_t until_ns,
                                   uint64_t seed,
                                   const ForeignRunner& before,
                                   const ForeignRunner& after);

}  // namespace ridge
