// Reports the steps of a run while it trains: to metrics.jsonl, TensorBoard and the observer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ridge/config/config.h"
#include "ridge/data/loader.h"
#include "ridge/run/observer.h"
#include "ridge/train/metrics.h"
#include "ridge/train/tensorboard.h"
#include "ridge/train/training_run.h"

namespace ridge {

/// The files that grow with a run; none without a folder.
class RunFiles {
 public:
  RunFiles() = default;
  /// Makes the folder and goes on behind `first_step`. UserError where nothing can be written.
  RunFiles(const std::filesystem::path& folder, int64_t first_step);

  void write(const StepReport& report) { write_all(report); }
  void write(const EvalReport& report) { write_all(report); }
  void flush();
  /// Empty where there is none.
  std::string metrics_path() const { return metrics_ ? metrics_->path().string() : ""; }

 private:
  void write_all(const auto& report) {
    if (!metrics_) return;
    metrics_->write(report);
    tensorboard_->write(report);
  }

  std::optional<MetricsWriter> metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
};

struct RunLength {
  int64_t total_steps = 0, steps_per_epoch = 0;
  int64_t samples = 0;  ///< Samples of the data set.
};

/// A step that is done, as the loop knows it.
struct DoneStep {
  int64_t step = 0;  ///< Steps done, this one included.
  int64_t samples = 0;
  data::LoaderPosition end;
  double seconds = 0;
  double loss_scale = 0;  ///< 0: there is none.
  int64_t skipped_steps = 0;
  const GpuReading* gpu = nullptr;  ///< Becomes StepReport::gpu.
};

class StepReporter {
 public:
  /// All must outlive it.
  StepReporter(const TrainConfig& config,
               const RunLength& length,
               RunFiles& files,
               TrainObserver& observer)
      : config_(config), length_(length), files_(files), observer_(observer) {}

  /// Whether step number `step` (from 1) is reported: each metrics.every, and those after which
  /// something is evaluated or saved, or all ends.
  bool is_due(int64_t step) const;
  /// Allocates nothing.
  void report(const DoneStep& done, const StepResult& result);

 private:
  const TrainConfig& config_;
  RunLength length_;
  RunFiles& files_;
  TrainObserver& observer_;
};

}  // namespace ridge
