// The runs of a third-party program by which what was kept is confirmed (confirm.h).
#pragma once

#include <cstdint>

#include "ridge/tune/pytorch/confirm.h"
#include "ridge/tune/pytorch/program_meter.h"

namespace ridge {

class ConfirmRuns {
 public:
  /// Runs of about `seconds`, or to the program's own end where that comes before. All must outlive
  /// it.
  ConfirmRuns(const ForeignTarget& target,
              const ForeignRecipe& result,
              const ProgramCosts& costs,
              double seconds);

  /// TrainOnce. VariantFailed where the run fails or takes several times as long as planned,
  /// TrialStopped with stop_requested().
  TrainedRun operator()(bool is_result, int64_t reseed) const;

 private:
  const ForeignTarget& target_;
  const ForeignRecipe& result_;
  bool has_steps_;
  int64_t steps_;  ///< A run is cut off behind so many, or behind as many samples.
  int64_t work_;   ///< Samples of a step of the result over those of a step before.
  double most_seconds_;
};

}  // namespace ridge
