#include "ridge/tune/onnx/model_report.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "ridge/base/machine/machine.h"
#include "ridge/base/shell_word.h"
#include "ridge/base/stats.h"
#include "ridge/proof/metered_runner.h"

namespace ridge {
namespace {

// How many times as fast the first of the pair is.
std::string times_as_fast(const TrialResult& trial) {
  std::string text = fmt::format("{:.2f}", std::exp(-trial.gain));
  if (trial.interval)
    text += fmt::format(
        " ({:.2f} to {:.2f})", std::exp(-trial.interval->high), std::exp(-trial.interval->low));
  return text;
}

// Whether the first of the pair is faster, wherever the gain lies in its interval.
bool is_proven_faster(const TrialResult& trial) {
  return trial.interval && trial.interval->high < 0;
}

}  // namespace

void describe_model(const ModelRequest& request, OptimizeSummary& summary) {
  summary.target =
      fmt::format("{} on cpu", std::filesystem::path(request.model).filename().string());
  summary.subject = "model";
  summary.recipe_use = "ridge bench " + shell_word(request.model) + " --recipe";
  summary.machine = machine_fingerprint("cpu");
  summary.energy_problem = "nothing was kept, so there was no proof to weigh";
}

VariantSpeed speed_of(const OpenModel& model, const std::vector<double>& runs) {
  const SessionFacts& facts = model.facts();
  VariantSpeed speed;
  speed.step_samples = static_cast<double>(model.samples());
  speed.planned_bytes = facts.planned_bytes;
  speed.measured_bytes = facts.peak_bytes;
  if (facts.planned_bytes > 0)
    speed.memory = {{"weights", facts.state_bytes},
                    {"arena", facts.arena_bytes},
                    {"other", facts.planned_bytes - facts.state_bytes - facts.arena_bytes}};
  if (!runs.empty()) {
    speed.p50_ms = 1e3 * median(runs);
    speed.p99_ms = 1e3 * quantile(runs, 0.99);
  }
  if (facts.first_seconds > 0) speed.first_ms = 1e3 * facts.first_seconds;
  return speed;
}

std::string baseline_text(const OpenModel& model, double seconds) {
  return fmt::format("the session as it is: {:.3g} ms a run, {:.3g} ms from the file to a result",
                     1e3 * seconds,
                     1e3 * model.facts().first_seconds);
}

std::string rival_text(const std::string& name, const OpenModel& rival, const TrialResult& trial) {
  const std::string rows =
      rival.samples() > 1 ? fmt::format(" of {} rows", rival.samples()) : std::string();
  if (trial.gain < 0)
    return fmt::format("baseline: {}, {:.3g} ms a run{}, {} times as fast as the session as it is",
                       name,
                       1e3 * trial.before_seconds,
                       rows,
                       times_as_fast(trial));
  return fmt::format(
      "baseline: the session as it is, {:.2f} times as fast as {}, {:.3g} ms a run{}",
      std::exp(trial.gain),
      name,
      1e3 * trial.before_seconds,
      rows);
}

std::string advice_of(const std::string& name, const TrialResult& trial) {
  if (!is_proven_faster(trial))
    return fmt::format("{} and Ridge's session are about as fast for this model here.", name);
  return fmt::format("Use {} for this model here: it is {} times as fast as Ridge's session.",
                     name,
                     times_as_fast(trial));
}

std::string advice_after_proof(const std::string& name, const TrialResult& trial) {
  if (!is_proven_faster(trial))
    return fmt::format("{} and the fastest that Ridge has for this model are about as fast here.",
                       name);
  return fmt::format(
      "Use {} for this model here: it is {} times as fast as the fastest that Ridge has.",
      name,
      times_as_fast(trial));
}

TrialResult prove_models(OpenModel& before,
                         OpenModel& after,
                         const TrialOptions& options,
                         OptimizeSummary& summary) {
  EnergyMeter meter;
  MeteredRunner metered_before(before, meter), metered_after(after, meter);
  before.take_runs();
  after.take_runs();
  const TrialResult trial = compare(metered_before, metered_after, options);
  summary.baseline = speed_of(before, before.take_runs());
  summary.result = speed_of(after, after.take_runs());
  summary.baseline.joules_per_step = metered_before.joules_per_step();
  summary.result.joules_per_step = metered_after.joules_per_step();
  summary.energy_of = meter.what();
  summary.energy_problem = meter.problem();
  if (meter.problem().empty() && !summary.result.joules_per_step)
    summary.energy_problem = fmt::format("the counters of {} stood still", meter.what());
  return trial;
}

}  // namespace ridge
