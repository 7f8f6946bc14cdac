// Text from a trained model: bytes, one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ridge/base/function_ref.h"
#include "ridge/config/config.h"
#include "ridge/run/observer.h"

namespace ridge {

struct GenerateRequest {
  TrainConfig config;   ///< The configuration of a GPT on bytes.
  std::string weights;  ///< See open_weights().
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
