// Whether a program trains as well with what was kept: longer runs of both, whose losses are
// compared at the end, with a margin that is fixed before the first run with the change.
//
// The loss is that of held-out samples, where the program computes one without gradients or prints
// one at its end, else the mean training loss over the last quarter of the steps. The margin is two
// deviations of it over the seeds of the program as it is, or two hundredths of what its training
// took off the loss, whichever is more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "ridge/attach/shim.h"
#include "ridge/proof/report/summary.h"

namespace ridge {

/// A run of a program, to its end or cut off behind the steps that were asked for.
struct TrainedRun {
  std::vector<double> losses{};                        ///< One a step; empty: none was seen.
  std::vector<attach::EvaluationFacts> evaluations{};  ///< Whole ones, the last of the run.
  int64_t evaluated = 0;                               ///< Evaluations in all.
  std::optional<double> printed{};                     ///< Held-out loss that it printed last.
  bool has_ended = false;                              ///< It came to its own end.
  double seconds = 0;
};

/// Runs the program as it is, or with what was kept, with a number that is added to its seeds.
using TrainOnce = std::function<TrainedRun(bool is_result, int64_t reseed)>;

/// Runs with other seeds are made as long as those of one side take `seconds` in sum. What `train`
/// throws is passed on.
OptimizeConfirmation confirm_training(const TrainOnce& train, double seconds);

/// The last held-out loss that a program printed, as "val_loss: 0.25" or "test loss = 0.25";
/// nothing where it printed none.
std::optional<double> printed_loss(std::string_view output);

}  // namespace ridge
