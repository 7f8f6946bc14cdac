#include "ridge/train/checkpointing.h"

#include "ridge/base/trace/trace.h"

namespace ridge {
namespace fs = std::filesystem;

Progress restore(const OpenCheckpoint& checkpoint, TrainingRun& run) {
  run.restore(checkpoint);
  const Checkpoint& info = checkpoint.info();
  Progress progress{.step = info.step, .position = {info.epoch, info.sample}};
  if (const auto best = info.numbers.find("best_eval_loss"); best != info.numbers.end())
    progress.best_eval_loss = best->second;
  return progress;
}

Checkpointer::Checkpointer(const std::string& out,
                           const CheckpointOptions& options,
                           TrainObserver& observer,
                           std::map<std::string, std::string> texts)
    : out_(out), options_(options), observer_(observer), texts_(std::move(texts)) {}

void Checkpointer::resumed(const fs::path& checkpoint, int64_t step) {
  std::error_code error;
  if (out_.empty() || !fs::equivalent(checkpoint.parent_path(), checkpoint_folder(out_), error))
    return;
  last_ = checkpoint.string();
  last_step_ = step;
}

void Checkpointer::after_step(const TrainingRun& run, const Progress& progress) {
  if (out_.empty() || options_.every == 0 || progress.step % options_.every != 0) return;
  try {
    save(run, progress);
  } catch (const UserError& error) {
    observer_.on_message(
        fmt::format("step {} was not saved, the run goes on: {}", progress.step, error.what()));
  }
}

void Checkpointer::save_best(const TrainingRun& run, const Progress& progress) {
  if (out_.empty() || !options_.best) return;
  save(run, progress);
  mark_best(checkpoint_folder(out_), progress.step);
}

void Checkpointer::save(const TrainingRun& run, const Progress& progress) {
  const TraceScope scope("checkpoint", "user_annotation");
  if (out_.empty() || progress.step == last_step_) return;
  Checkpoint info;
  info.step = progress.step;
  info.epoch = progress.position.epoch;
  info.sample = progress.position.sample;
  info.texts = texts_;
  if (progress.best_eval_loss < std::numeric_limits<double>::infinity())
    info.numbers["best_eval_loss"] = progress.best_eval_loss;
  const fs::path folder = checkpoint_folder(out_);
  last_ = save_checkpoint(folder, info, run.tensors(true)).string();
  last_step_ = progress.step;
  prune_checkpoints(folder, options_.keep, progress.step);
  observer_.on_checkpoint(last_, progress.step);
}

}  // namespace ridge
