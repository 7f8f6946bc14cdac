// One variant of a program of others, held between steps, so that compare() (trial.h) can time two
// of them in turn.
#pragma once

#include <memory>

#include "ridge/tune/foreign_program.h"
#include "ridge/tune/trial.h"

namespace ridge {

struct ForeignRunnerOptions {
  int64_t warm_steps = 5;      ///< Before the first block, so many at least, and
  double warm_seconds = 1;     ///< so many seconds of them.
  double start_seconds = 120;  ///< It has to come to a step within.
  double block_seconds = 120;  ///< A block has to end within, else it hangs.
  int64_t deadline_ns = 0;     ///< By now_ns(): TrialStopped; 0: none.
};

class ForeignRunner final : public Runner {
 public:
  /// Starts the program and waits until it is warm and held. ForeignFailed where it comes to no
  /// step (with what was looked for), TrialStopped with stop_requested() or at the deadline.
  ForeignRunner(const ForeignTarget& target,
                const ForeignRecipe& recipe,
                const ForeignRunnerOptions& options);
  ~ForeignRunner() override;

  /// The program runs for so many steps and is held again, with all its processes. Intervals in
  /// which it iterated a loader anew or saved are no steps of the block: they are counted apart. A
  /// program that ends is started again, and the block with it. ForeignFailed where it fails.
  Block run(int64_t steps) override;

  /// That a block has to have for what loads ahead to be timed as it runs.
  int64_t least_steps() const;
  /// Of the held process.
  attach::ProcessFacts facts() const;
  /// From its start until it was warm, the last time.
  double open_seconds() const;
  /// Intervals that were no steps: how many, and their median seconds.
  int64_t breaks() const;
  double break_seconds() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ridge
