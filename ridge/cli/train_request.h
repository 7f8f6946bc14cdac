// The options of `ridge train`, and what they ask for.
#pragma once

#include <string>
#include <vector>

#include "ridge/train/train.h"

namespace ridge {

struct TrainOptions {
  std::string config;                      ///< Path of the TOML file.
  std::string steps, seed, out, device;    ///< Short for `--set train.KEY=...`; empty: not given.
  std::string resume = "no", init, trace;  ///< As in TrainRequest.
  std::vector<std::string> set;            ///< "KEY=VALUE"
  bool verify = false;
  bool json = false;
};

/// Reads the file and lays the options over it; settings among them go to settings(). UserError for
/// what is wrong in either, or does not go together.
TrainRequest make_train_request(const TrainOptions& options);

}  // namespace ridge
