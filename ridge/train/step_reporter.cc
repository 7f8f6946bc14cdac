#include "ridge/train/step_reporter.h"

#include <system_error>

#include "ridge/base/error.h"
#include "ridge/base/trace/trace.h"

namespace ridge {

RunFiles::RunFiles(const std::filesystem::path& folder, int64_t first_step) {
  const std::filesystem::path boards = folder / "tensorboard";
  std::error_code error;
  std::filesystem::create_directories(boards, error);
  check(!error, "cannot make the folder '{}': {}", boards.string(), error.message());
  metrics_.emplace(folder / "metrics.jsonl", first_step);
  tensorboard_.emplace(boards, first_step);
}

void RunFiles::flush() {
  if (!metrics_) return;
  metrics_->flush();
  tensorboard_->flush();
}

bool StepReporter::is_due(int64_t step) const {
  const auto each = [step](int64_t every) { return every > 0 && step % every == 0; };
  const int64_t eval_every = config_.train.eval_every;
  return each(config_.metrics.every) || step == length_.total_steps ||
         each(eval_every > 0 ? eval_every : length_.steps_per_epoch) ||
         each(config_.checkpoint.every);
}

void StepReporter::report(const DoneStep& done, const StepResult& result) {
  const TraceScope scope("log_metrics", "metrics");
  const double epoch = static_cast<double>(done.end.epoch) +
                       static_cast<double>(done.end.sample) / static_cast<double>(length_.samples);
  const nn::StepScalars scalars =
      nn::step_scalars(config_.optimizer, config_.schedule, done.step - 1, length_.total_steps);
  const StepReport report{.step = done.step,
                          .total_steps = length_.total_steps,
                          .epoch = epoch,
                          .loss = result.loss,
                          .grad_norm = result.grad_norm,
                          .lr = scalars.lr,
                          .step_ms = done.seconds * 1e3,
                          .samples_per_s = static_cast<double>(done.samples) / done.seconds,
                          .loss_scale = done.loss_scale,
                          .skipped_steps = done.skipped_steps,
                          .gpu = done.gpu};
  files_.write(report);
  observer_.on_step(report);
}

}  // namespace ridge
