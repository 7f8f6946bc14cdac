// The evaluation of a trained model on the samples that its configuration keeps for it.
#pragma once

#include <cstdint>
#include <string>

#include "ridge/config/config.h"
#include "ridge/run/observer.h"

namespace ridge {

/// Fields of the object "ridge.eval/1".
struct EvalResult {
  std::string model, weights;  ///< Kind, and the file or folder that the parameters come from.
  EvalReport report;
};

/// Evaluates on config.data's samples to evaluate on. `weights`: a safetensors file, a checkpoint's
/// or a run's folder; empty: the best or else the newest checkpoint in config.train.out. UserError
/// when there is none, it is of another model, or there are no such samples.
EvalResult evaluate_model(const TrainConfig& config,
                          const std::string& weights,
                          TrainObserver& observer);

}  // namespace ridge
