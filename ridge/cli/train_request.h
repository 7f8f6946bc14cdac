// The options of `ridge train`, and what they ask for.
#pragma once

#include <string>

#include "ridge/cli/common/config_options.h"
#include "ridge/train/train.h"

namespace ridge {

struct TrainOptions {
  ConfigOptions config;
  std::string steps, seed, out;            ///< Short for `--set train.KEY=...`; empty: not given.
  std::string resume = "no", init, trace;  ///< Fields of TrainRequest.
  bool verify = false;
  bool json = false;
};

/// Reads the file and lays the options over it; settings among them go to settings(). UserError for
/// what is wrong in either, or does not go together.
TrainRequest make_train_request(const TrainOptions& options);

}  // namespace ridge
