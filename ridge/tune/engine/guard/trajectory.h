// Whether a run that makes other updates gets as far: runs in pairs, from the same initial state,
// on the same samples in the same order, each side in batches of its own.
//
// Step by step there is nothing to compare, for other updates lead elsewhere. What both can be
// asked for is the loss after as many samples. Runs begin where training begins, with the schedule
// of the whole run. There fewer updates cost most: a change that falls behind may catch up later,
// and one that does not may still end worse, after epochs for which no guard has the time. So the
// text says how far the runs went, and that nothing is shown of what comes after.
#pragma once

#include <functional>

#include "ridge/tune/engine/guard/configs.h"
#include "ridge/tune/engine/guard/guard.h"

namespace ridge {

/// One side of the pairs.
struct TrajectorySide {
  Variant& variant;      ///< Made for the steps of its own whole run.
  data::BatchPlan plan;  ///< Of its own batches; seed and shuffling are those of the other side.
  /// Mean loss of the variant, as it is, on samples that no run trains on; null: there are none,
  /// and the losses of the steps are compared.
  std::function<double()> held_out = nullptr;
};

struct TrajectoryOptions {
  int64_t pairs = 12;       ///< Of runs; at least 3.
  int64_t samples = 0;      ///< Of each run, as aligned_samples() makes them.
  int64_t run_samples = 0;  ///< Of the whole run.
};

/// At most `wanted`: whole epochs of `epoch` samples, and the rest in whole batches; then both
/// sides take the same samples where one's batch is a multiple of the other's. At least `batch`.
int64_t aligned_samples(int64_t wanted, int64_t epoch, int64_t batch);

/// The margin is the deviation of the reference's loss from order to order of the samples, fixed
/// before the candidate runs; it passes where its loss is worse by less, with 95 % confidence. A
/// loss is the mean over the last third of a run, at equal samples of both sides. UserError where
/// the reference's is not finite. Afterwards both have any state.
GuardReport guard_trajectory(const TrajectorySide& reference,
                             const TrajectorySide& candidate,
                             const data::Dataset& dataset,
                             const TrajectoryOptions& options);

/// The same of two configurations; where request.most_steps are too few to tell, says so and runs
/// nothing.
GuardAnswer guard_trajectory_configs(const GuardRequest& request);

}  // namespace ridge
