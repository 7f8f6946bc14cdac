// When a run saves, and which of its checkpoints was the best.
#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "ridge/infer/find_checkpoint.h"
#include "ridge/run/observer.h"
#include "ridge/train/training_run.h"

namespace ridge {

/// The position of a run, which a checkpoint keeps beside the state.
struct Progress {
  int64_t step = 0;               ///< Steps done.
  data::LoaderPosition position;  ///< The next sample to train on.
  double best_eval_loss = std::numeric_limits<double>::infinity();
};

/// Restores state and progress. UserError when the checkpoint is of another model.
Progress restore(const OpenCheckpoint& checkpoint, TrainingRun& run);

class Checkpointer {
 public:
  /// `out` empty: saves nothing. `texts` are what each checkpoint says beside its state.
  Checkpointer(const std::string& out,
               const CheckpointOptions& options,
               TrainObserver& observer,
               std::map<std::string, std::string> texts = {});

  /// Says that step `step` needs no saving when the checkpoint it comes from is one of this run's.
  void resumed(const std::filesystem::path& checkpoint, int64_t step);
  /// Saves at every `options.every` steps. A failure (a full disk) is reported to the observer, and
  /// the run goes on: the older checkpoints are there.
  void after_step(const TrainingRun& run, const Progress& progress);
  /// Saves and marks the checkpoint as the best.
  void save_best(const TrainingRun& run, const Progress& progress);
  /// Saves unless this step is saved already. UserError when it fails.
  void save(const TrainingRun& run, const Progress& progress);
  /// Folder of the newest checkpoint that this run wrote; empty: none.
  const std::string& last() const { return last_; }

 private:
  std::string out_;
  CheckpointOptions options_;
  TrainObserver& observer_;
  std::map<std::string, std::string> texts_;
  std::string last_;
  int64_t last_step_ = -1;
};

}  // namespace ridge
