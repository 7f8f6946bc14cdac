// Optimizers as graphs: SGD with momentum and AdamW (Loshchilov and Hutter, "Decoupled weight
// decay regularization", 2019), after clipping by the global norm.
#pragma once

#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/nn/module.h"
#include "ridge/nn/options.h"

namespace ridge::nn {

/// UserError when a value is out of range or the kind unknown.
void check_options(const OptimizerOptions& options);

/// The scalars of an update that change from step to step, computed on the host in double.
struct StepScalars {
  double lr = 0.0;
  double keep = 1.0;        ///< 1 - lr * weight_decay: AdamW's factor on the weights.
  double step_size = 0.0;   ///< lr / (1 - beta1^t).
  double root_scale = 1.0;  ///< 1 / sqrt(1 - beta2^t).
};
inline constexpr int64_t kStepScalars = 4;

/// The scalars of step `step` (the first is 0) of `total_steps`. The learning rate follows the
/// steps whatever came of them; t, the number of updates, leaves out those `skipped` before.
StepScalars step_scalars(const OptimizerOptions& optimizer,
                         const ScheduleOptions& schedule,
                         int64_t step,
                         int64_t total_steps,
                         int64_t skipped = 0);

/// Writes the scalars into what the graphs take in as "hyper": a float [kStepScalars], or into a
/// row of several such. Allocates nothing.
void set_hyper(const StepScalars& scalars, Tensor& hyper, int64_t row = 0);
/// The same as a new tensor.
Tensor hyper_tensor(const StepScalars& scalars, DType dtype);

/// The same as scalar values of a graph, in the order of StepScalars.
struct HyperValues {
  Value lr, keep, step_size, root_scale;
};
/// The elements of the input "hyper", or of its row that counts.
HyperValues split_hyper(Value hyper);

/// The moments of a parameter: "NAME.m" and "NAME.v" (AdamW), "NAME.m" (SGD with momentum). They
/// start at zero.
std::vector<std::string> moment_names(const OptimizerOptions& options, const std::string& name);

/// One parameter on its way through the optimizer; all of one shape. The gradient and the moments
/// are of the accumulate dtype, which is what the update is computed in.
struct ParameterUpdate {
  Value parameter, gradient;
  std::vector<Value> moments;
  bool decay = false;
};
struct UpdatedParameter {
  Value parameter;
  std::vector<Value> moments;
};

/// The parameter and its moments after one step.
UpdatedParameter update_parameter(const OptimizerOptions& options,
                                  const ParameterUpdate& update,
                                  const HyperValues& hyper);

/// sqrt of the sum of squares of all elements of all `gradients`: a scalar.
Value global_norm(const std::vector<Value>& gradients);

/// min(1, clip / (norm + 1e-6)).
Value clip_coefficient(Value norm, double clip);

}  // namespace ridge::nn
