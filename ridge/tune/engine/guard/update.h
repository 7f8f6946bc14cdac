// The parts of a step that must agree to the rounding of the state, whatever precision the
// gradients were computed in.
#pragma once

#include <string>
#include <vector>

#include "ridge/tune/engine/guard/guard.h"

namespace ridge {

/// A step to look at: reference and candidate have just run it from `start`.
struct GuardedStep {
  const GuardVariants& variants;
  const StateSnapshot& start;
  const data::Batch& batch;
  int64_t step;
};

/// One tensor that the optimizer makes.
struct UpdateError {
  std::string tensor;  ///< Such as "head.bias: update".
  int64_t step = 0;
  double error = 0, limit = 0;  ///< Norms relative to the tensor's.
  double share = 1;             ///< Of the elements, those whose moments could be made equal.
};

/// Runs the reference again, from moments that lead it to the candidate's new ones: then the new
/// parameters must be the candidate's, since schedule and optimizer see the same.
std::vector<UpdateError> update_errors(const GuardedStep& at,
                                       const nn::OptimizerOptions& optimizer);

/// AdamW: what the candidate's second moments took in against the square of what its first moments
/// took in, which is the gradient. Nothing for other optimizers.
std::vector<UpdateError> moment_errors(const GuardedStep& at,
                                       const nn::OptimizerOptions& optimizer);

/// Flags, such as "halted", that differ.
std::vector<GuardFailure> flag_failures(const GuardedStep& at);
/// Gradient buffers of the candidate that the step did not clear.
std::vector<GuardFailure> leftover_failures(const GuardedStep& at);

/// Runs both on a state that is not finite. What the reference then leaves as it was, the candidate
/// must leave.
std::vector<GuardFailure> overflow_failures(const GuardedStep& at);
/// Runs the candidate once with a gradient that overflows f16, its loss being finite: then too it
/// must leave all as it was but its loss scale. Nothing where it has none.
std::vector<GuardFailure> scale_failures(const GuardedStep& at);

}  // namespace ridge
