// A training configuration of the engine as the target of a tuning loop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridge/config/recipe.h"
#include "ridge/tune/engine/techniques.h"
#include "ridge/tune/target.h"

namespace ridge {

struct OptimizeRequest {
  std::string config_text;          ///< TOML.
  std::string config_name;          ///< The path of the file, for messages.
  std::vector<ConfigFlag> flags{};  ///< Laid over it; no technique changes what they set.
  std::string program;              ///< The path of ridge, which the variants run in.
  /// Bytes that state, arena and staged batches may take together: the fastest way to keep within
  /// them is then searched for. 0: any number.
  int64_t memory_bytes = 0;
  std::span<const Technique> techniques = ridge::techniques();
  LoopOptions loop{};
};

/// The configuration as a target of run_loop() and replay(). No file of the user is touched.
std::unique_ptr<Target> config_target(OptimizeRequest request);

}  // namespace ridge
