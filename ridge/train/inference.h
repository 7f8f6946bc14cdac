// What is done with a trained model: evaluation and generation of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ridge/base/function_ref.h"
#include "ridge/train/config.h"
#include "ridge/train/observer.h"

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

struct GenerateRequest {
  TrainConfig config;   ///< Of a GPT on bytes.
  std::string weights;  ///< As above.
  std::string prompt;   ///< Empty: a zero byte, which stands between texts.
  int64_t tokens = 200;
  double temperature = 0.8;  ///< 0 takes the likeliest token each time.
  int64_t top_k = 40;        ///< Only the likeliest so many; 0: all.
  uint64_t seed = 0;
};

/// Gives the new bytes to `sink` as they come. The same request gives the same text. UserError when
/// the model is no GPT of 256 tokens or fewer, or a number is out of range.
void generate(const GenerateRequest& request,
              TrainObserver& observer,
              FunctionRef<void(std::string_view)> sink);

}  // namespace ridge
