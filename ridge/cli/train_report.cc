#include "ridge/cli/train_report.h"

#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <string_view>

#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"

namespace ridge {
namespace {

bool known(double value) { return !std::isnan(value); }

std::string_view signal_name(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "a signal";
}

class Summary {
 public:
  explicit Summary(std::string heading) : text_(std::move(heading) + "\n\n") {}
  void add(std::string_view name, const std::string& value, const std::string& remark = {}) {
    if (value.empty()) return;
    text_ += remark.empty() ? fmt::format("  {:<11} {}\n", name, value)
                            : fmt::format("  {:<11} {:<15} {}\n", name, value, remark);
  }
  std::string finish() { return std::move(text_); }

 private:
  std::string text_;
};

void add_quality(Summary& summary, const TrainResult& result) {
  const auto& last = result.final;
  const bool evaluated = known(last.eval_loss);
  if (known(last.eval_accuracy))
    summary.add("accuracy", fmt::format("{:.2f} %", 100 * last.eval_accuracy), "evaluation data");
  if (evaluated)
    summary.add("loss",
                fmt::format("{:#.4g}", last.eval_loss),
                known(last.train_loss)
                    ? fmt::format("evaluation data; training {:#.4g}", last.train_loss)
                    : "evaluation data");
  else if (known(last.train_loss))
    summary.add("loss", fmt::format("{:#.4g}", last.train_loss), "training");
}

void add_speed(Summary& summary, const TrainResult& result) {
  if (known(result.samples_per_s))
    summary.add("speed", scaled(result.samples_per_s) + " samples/s");
  const auto& step = result.step_ms;
  if (known(step.median))
    summary.add(
        "step",
        fmt::format("{:#.3g} ms", step.median),
        known(step.p10) && known(step.p90)
            ? fmt::format("from {:#.3g} to {:#.3g} ms in 80 % of the steps", step.p10, step.p90)
            : "");
  if (known(result.loader_wait_share))
    summary.add("data",
                fmt::format("{:.1f} %", 100 * result.loader_wait_share),
                "of the time was waiting for it");
  if (result.skipped > 0)
    summary.add("skipped", grouped(result.skipped), "samples that could not be read");
}

void add_memory(Summary& summary, const TrainResult& result) {
  const auto& memory = result.memory;
  if (memory.planned_bytes <= 0) return;
  std::string remark = "planned";
  if (memory.measured_bytes > 0)
    remark += fmt::format(", {} measured", bytes_text(memory.measured_bytes));
  if (memory.captured_bytes > 0)
    remark += fmt::format(" with {} of captured launches", bytes_text(memory.captured_bytes));
  if (memory.lower_bound_bytes > 0)
    remark += fmt::format(", {} the least possible", bytes_text(memory.lower_bound_bytes));
  summary.add("memory", bytes_text(memory.planned_bytes), remark);
}

}  // namespace

std::string train_summary(const TrainResult& result) {
  if (result.verified == false) return "nothing was trained: the check of --verify failed\n";
  std::string heading = fmt::format("trained {} on {}: {} step{}, {:.4g} epochs, {}",
                                    result.model,
                                    result.device,
                                    grouped(result.steps),
                                    result.steps == 1 ? "" : "s",
                                    result.epochs,
                                    duration_text(result.seconds));
  if (result.interrupted_by != 0)
    heading += fmt::format("; stopped early by {}", signal_name(result.interrupted_by));
  Summary summary(std::move(heading));
  add_quality(summary, result);
  add_speed(summary, result);
  add_memory(summary, result);
  summary.add("parameters", grouped(result.parameters));
  summary.add("checkpoint", result.checkpoint);
  summary.add("metrics", result.metrics);
  summary.add(
      "state", result.state_hash, result.plan_hash.empty() ? "" : "plan " + result.plan_hash);
  return summary.finish();
}

std::string train_json(const TrainResult& result) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.train/1");
  json.field("device", result.device).field("model", result.model);
  json.field("parameters", result.parameters).field("steps", result.steps);
  json.field("epochs", result.epochs).field("seconds", result.seconds);
  json.field("samples_per_s", result.samples_per_s);
  json.key("step_ms").begin_object().field("median", result.step_ms.median);
  json.field("p10", result.step_ms.p10).field("p90", result.step_ms.p90).end_object();
  json.field("loader_wait_share", result.loader_wait_share).field("skipped", result.skipped);
  json.key("final").begin_object().field("train_loss", result.final.train_loss);
  json.field("eval_loss", result.final.eval_loss);
  json.field("eval_accuracy", result.final.eval_accuracy).end_object();
  json.key("memory").begin_object().field("planned_bytes", result.memory.planned_bytes);
  json.key("measured_bytes");
  result.memory.measured_bytes > 0 ? json.value(result.memory.measured_bytes) : json.value(nullptr);
  json.field("lower_bound_bytes", result.memory.lower_bound_bytes);
  json.field("captured_bytes", result.memory.captured_bytes).end_object();
  json.key("capture_refusal");
  result.capture_refusal.empty() ? json.value(nullptr) : json.value(result.capture_refusal);
  json.key("kernels_changed").begin_array();
  for (const ChangedKernel& each : result.kernels_changed)
    json.begin_object()
        .field("site", each.site)
        .field("was", each.was)
        .field("is", each.is)
        .end_object();
  json.end_array();
  json.field("state_hash", result.state_hash).field("plan_hash", result.plan_hash);
  json.key("verified");
  result.verified.has_value() ? json.value(*result.verified) : json.value(nullptr);
  json.key("interrupted_by");
  result.interrupted_by != 0 ? json.value(signal_name(result.interrupted_by)) : json.value(nullptr);
  json.field("checkpoint", result.checkpoint).field("metrics", result.metrics);
  json.end_object().finish();
  return text + "\n";
}

}  // namespace ridge
