// A training run: from a configuration to a trained model, metrics and a result.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "ridge/compile/plan.h"
#include "ridge/config/config.h"
#include "ridge/run/observer.h"
#include "ridge/train/run_kernels.h"

namespace ridge {

struct TrainRequest {
  TrainConfig config;
  std::string
      config_toml;  ///< `config` with where each value comes from, to be kept in its folder.
  std::string resume =
      "no";             ///< auto (the newest checkpoint in config.train.out), no, or a folder.
  std::string init;     ///< File of parameters to start from; empty: fresh ones.
  std::string trace;    ///< File that takes a Chrome trace of the run; empty: none.
  bool verify = false;  ///< First check the program against the plainest way (verify.h).
  ChooseCandidate choose = nullptr;  ///< Picks kernels, as in Task.
};

/// Fields of the object "ridge.train/1". NaN stands for "not measured" and is null in JSON.
struct TrainResult {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string device, model;
  int64_t parameters = 0;
  int64_t steps = 0;  ///< Steps done since the start of training, before a resume included.
  double epochs = 0;
  double seconds = 0;  ///< Wall time of this run.
  double samples_per_s = kNone;
  struct {
    double median = kNone, p10 = kNone, p90 = kNone;
  } step_ms;
  int64_t skipped = 0;               ///< Samples that could not be read and that others replaced.
  double loader_wait_share = kNone;  ///< Share of the time in which a step waited for data.
  struct {
    double train_loss = kNone, eval_loss = kNone;
    double eval_accuracy = kNone;  ///< 0 to 1; none for a regression.
  } final;
  struct {
    int64_t planned_bytes = 0;  ///< Peak of the memory plan.
    /// Bytes of it that the operating system counts; 0: not measured.
    int64_t measured_bytes = 0;
    int64_t lower_bound_bytes = 0;  ///< The largest set of buffers alive at once.
    int64_t captured_bytes = 0;  ///< Beside the plan: what captured launches took of the device's.
  } memory;
  std::string capture_refusal;  ///< Why the device could not capture launches; empty: it could.
  /// Launches with another kernel than the checkpoint that the run was resumed from had.
  std::vector<ChangedKernel> kernels_changed;
  std::string state_hash, plan_hash;
  /// Result of `verify`; nothing if it was not asked for. When false, nothing was trained.
  std::optional<bool> verified;
  int interrupted_by = 0;           ///< Number of the signal that ended the run early, or 0.
  std::string checkpoint, metrics;  ///< Paths of what was written last; empty: nothing.
};

/// Trains. UserError for what is wrong with the configuration, the data, or a file to read or
/// write. When stop_requested() (stop.h) becomes true it saves a checkpoint and returns early.
TrainResult train(const TrainRequest& request, TrainObserver& observer);

}  // namespace ridge
