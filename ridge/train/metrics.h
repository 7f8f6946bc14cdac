// metrics.jsonl: what a run measures, one JSON object a line.
#pragma once

#include <filesystem>

#include "ridge/io/append_file.h"
#include "ridge/run/observer.h"

namespace ridge {

/// Calls visit(name, tag, value) for the numbers of a report that metrics.jsonl, by their names,
/// and TensorBoard, by their tags, both have.
void visit_numbers(const StepReport& report, auto&& visit) {
  visit("loss", "train/loss", report.loss);
  visit("grad_norm", "train/grad_norm", report.grad_norm);
  visit("lr", "train/lr", report.lr);
  visit("samples_per_s", "train/samples_per_s", report.samples_per_s);
  visit("step_ms", "train/step_ms", report.step_ms);
  if (report.loss_scale > 0) visit("loss_scale", "train/loss_scale", report.loss_scale);
}
void visit_numbers(const EvalReport& report, auto&& visit) {
  visit("eval_loss", "eval/loss", report.loss);
  visit("eval_accuracy", "eval/accuracy", report.accuracy);
}
/// The same of the values that the GPU reports; bytes are int64_t, all others double.
void visit_numbers(const GpuReading& gpu, auto&& visit) {
  const auto known = [&](const char* name, const char* tag, auto value) {
    if (value >= 0) visit(name, tag, value);
  };
  known("gpu_watts", "gpu/watts", gpu.watts);
  known("gpu_joules", "gpu/joules", gpu.joules);
  known("gpu_memory_bytes", "gpu/memory_bytes", gpu.memory_bytes);
  known("gpu_sm_mhz", "gpu/sm_mhz", gpu.sm_mhz);
  known("gpu_celsius", "gpu/celsius", gpu.celsius);
}

/// Lines of steps have step, epoch, loss, grad_norm, lr, samples_per_s and step_ms, with a loss
/// scale also loss_scale (of the next step) and skipped_steps (so far); the grad_norm of a step
/// that was skipped is null; on a GPU, of what it reports, gpu_watts, gpu_joules (of the run so
/// far), gpu_memory_bytes, gpu_sm_mhz, gpu_celsius and gpu_held_by (why its clocks are held back).
/// Those of evaluations step, eval_loss, eval_accuracy (null for a regression), eval_samples and
/// eval_seconds. Writing allocates nothing; it reaches the file within about a second, at flush()
/// and at the end.
class MetricsWriter {
 public:
  /// Goes on behind the lines of steps up to `last_step` (0 for a fresh run) and drops those after
  /// them, so that a resumed run neither misses nor repeats a step. UserError when the file holds
  /// other lines than metrics, which are left alone, or cannot be written.
  MetricsWriter(const std::filesystem::path& path, int64_t last_step);

  void write(const StepReport& report);
  void write(const EvalReport& report);
  void flush() { file_.flush(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace ridge
