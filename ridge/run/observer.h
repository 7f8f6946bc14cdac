// Reports of a training run's events: the command line shows them, tests count them.
#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/base/machine/gpu_watch.h"

namespace ridge {

struct StartReport {
  std::string_view model;   ///< Kind: "cnn".
  std::string_view device;  ///< "cpu".
  int64_t parameters = 0;
  int64_t first_step = 0;  ///< Steps already done before this run: above 0 after a resume.
  int64_t total_steps = 0;
  int64_t planned_bytes = 0;  ///< Peak of the memory plan.
};

struct StepReport {
  int64_t step = 0;  ///< Steps done, this one included.
  int64_t total_steps = 0;
  double epoch = 0;  ///< Epochs done, with the fraction.
  double loss = 0, grad_norm = 0, lr = 0;
  double step_ms = 0, samples_per_s = 0;
  double loss_scale = 0;            ///< Loss scale of the next step; 0: there is none.
  int64_t skipped_steps = 0;        ///< So far, since their gradients overflowed.
  const GpuReading* gpu = nullptr;  ///< The GPU that trains; null: there is none, or nothing known.
};

struct EvalReport {
  int64_t step = 0;
  double loss = 0;
  double accuracy = 0;  ///< 0 to 1; NaN for a regression.
  int64_t samples = 0;
  double seconds = 0;
};

/// Called by the training thread; what an observer throws ends the run. Views are valid during the
/// call only.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_start(const StartReport&) {}
  /// Called for each reported step: all of them, unless metrics.every is above 1.
  virtual void on_step(const StepReport&) {}
  virtual void on_eval(const EvalReport&) {}
  virtual void on_checkpoint(std::string_view /*path*/, int64_t /*step*/) {}
  /// A line for the user that is neither of these: a skipped file, a resumed checkpoint.
  virtual void on_message(std::string_view /*text*/) {}
};

}  // namespace ridge
