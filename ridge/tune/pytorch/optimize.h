// The closed loop over a program of others: find out what could be changed from outside, try one
// change at a time against the best so far, keep what is proven faster and computes the same, and
// prove the sum of it once more in fresh processes.
#pragma once

#include <cstdint>
#include <optional>

#include "ridge/proof/trial.h"
#include "ridge/tune/loop.h"
#include "ridge/tune/pytorch/program.h"

namespace ridge {

struct ForeignOptimizeRequest {
  ForeignTarget target;
  double budget_seconds = 300;
  /// How long the user's own run takes as it is: what a change costs once, as compiling does, has
  /// to come back within it. Nothing: what the command takes, or an hour where its end is not seen.
  std::optional<double> planned_seconds;
  bool allow_trajectory = false;  ///< SemanticClass::kTrajectory may be tried.
  uint64_t seed = 0;              ///< Of the coins.
  bool is_dry = false;            ///< Only the probe; all is listed in the order of trials.
};

/// As optimize(). UserError where the program cannot be run, fails as it is, or comes to no step,
/// with what was looked for.
OptimizeResult optimize_program(const ForeignOptimizeRequest& request, OptimizeObserver& observer);

/// Times a record's recipe against the one before it, once more in fresh processes. UserError where
/// the record changed nothing or a variant cannot be run.
TrialResult replay_program(const TrialRecord& record,
                           const ForeignTarget& target,
                           double seconds,
                           uint64_t seed,
                           RecipeTrust trust);

/// 16 hex digits of the command.
std::string command_hash(const attach::CommandTemplate& command);

}  // namespace ridge
