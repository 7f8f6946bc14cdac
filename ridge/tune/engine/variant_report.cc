#include "ridge/tune/engine/variant_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/shell_word.h"
#include "ridge/proof/metered_runner.h"
#include "ridge/proof/report/words.h"
#include "ridge/run/backends.h"

namespace ridge {
namespace {

// Steps are traced for so many seconds, for the picture of one.
constexpr double kTracedSeconds = 0.3;
constexpr int64_t kTracedSteps = 5;

// One step, traced; without launches where that fails. Tracing takes a little time and memory:
// after what is claimed was measured.
StepTimeline timeline_of(OpenConfig& variant, double step_seconds) {
  const auto steps = static_cast<int64_t>(kTracedSeconds / std::max(step_seconds, 1e-6));
  try {
    return variant.worker().timeline(std::clamp<int64_t>(steps, 1, kTracedSteps));
  } catch (const VariantFailed&) {
    return {};
  } catch (const UserError&) {
    return {};
  } catch (const TrialStopped&) {
    return {};
  }
}

// Which of a device and its host the other waits for.
std::string queue_text(double queue_seconds, double compute_seconds) {
  constexpr double kNear = 0.8;
  return fmt::format(
      "device: the host queues a step in {:.3g} ms, and the device is through in {:.3g} ms: {}",
      1e3 * queue_seconds,
      1e3 * compute_seconds,
      queue_seconds > kNear * compute_seconds ? "it waits for launches"
                                              : "launches do not hold it back");
}

}  // namespace

void describe_config(const OptimizeRequest& request,
                     const std::string& device,
                     OptimizeSummary& summary) {
  summary.target = fmt::format("{} on {}", request.config_name, device);
  const std::string train = "ridge train " + shell_word(request.config_name);
  summary.recipe_use = train + " --recipe";
  for (const ConfigFlag& flag : request.flags)
    summary.recipe_rest += " --set " + shell_word(fmt::format("{}={}", flag.key, flag.value));
  summary.doctor_use = fmt::format(
      "{}{} --steps 14 --trace step.json && ridge doctor step.json", train, summary.recipe_rest);
  summary.machine = device_fingerprint(device);
  summary.energy_problem = "nothing was kept, so there was no proof to weigh";
}

void describe_variant(const OpenConfig& variant, VariantSpeed& speed) {
  const VariantFacts& facts = variant.facts();
  speed.config = variant.resolved().toml;
  speed.planned_bytes = facts.planned_bytes;
  speed.measured_bytes = variant.worker().measured_bytes();
  speed.memory = {{"state", facts.state_bytes},
                  {"arena", facts.planned_bytes - facts.state_bytes - facts.staging_bytes},
                  {"batches that the loader stages", facts.staging_bytes}};
  speed.step_samples = samples_per_step(facts);
}

void report_baseline(const LoopView& loop,
                     OpenConfig& variant,
                     const StepCosts& costs,
                     std::optional<double> queue_seconds) {
  VariantSpeed& speed = loop.summary.baseline;
  describe_variant(variant, speed);
  speed.set_step(costs.step, costs.wait_share);
  speed.timeline = timeline_of(variant, costs.step);
  loop.report(
      fmt::format("baseline: {:.3g} ms a step; {:.3g} ms without the loader, {:.3g} ms the "
                  "loader alone, {:.3g} ms without kernels, {:.3g} ms to report it",
                  1e3 * costs.step,
                  1e3 * costs.compute,
                  1e3 * costs.load,
                  1e3 * costs.host,
                  1e3 * costs.report));
  if (queue_seconds) loop.report(queue_text(*queue_seconds, costs.compute));
  loop.report(
      fmt::format("ceilings: {:.2f} times as fast if loading were free, {:.2f} if computing were",
                  loading_ceiling(costs),
                  computing_ceiling(costs)));
}

TrialResult prove_configs(OpenConfig& before,
                          OpenConfig& after,
                          const TrialOptions& options,
                          OptimizeSummary& summary) {
  EnergyMeter meter(kPowercap, make_backend(after.config().train.device)->gpu_uuid());
  MeteredRunner metered_before(before, meter), metered_after(after, meter);
  const TrialResult trial = compare(metered_before, metered_after, options);
  describe_variant(before, summary.baseline);
  describe_variant(after, summary.result);
  summary.baseline.joules_per_step = metered_before.joules_per_step();
  summary.result.joules_per_step = metered_after.joules_per_step();
  summary.energy_of = meter.what();
  summary.energy_problem = meter.problem();
  if (meter.problem().empty() && !energy_ratio(summary))
    summary.energy_problem = fmt::format("the counters of {} stood still", meter.what());
  summary.baseline.timeline = timeline_of(before, trial.before_seconds);
  summary.result.timeline = timeline_of(after, trial.after_seconds);
  if (trial.verdict == Verdict::kFaster && after.config().loader.cache &&
      !before.config().loader.cache)
    summary.notes.emplace_back(
        "the claim is of steps from the second epoch on, when samples are in memory");
  return trial;
}

std::string text_of_limit(const VariantFacts& facts, std::optional<int64_t> unlimited_bytes) {
  const std::string peak = unlimited_bytes ? fmt::format("; peak {:.1f} -> {:.1f} MiB",
                                                         in_mebibytes(*unlimited_bytes),
                                                         in_mebibytes(facts.planned_bytes))
                                           : "";
  if (facts.memory_text.empty()) return "the plan is within the limit as it is" + peak;
  return (facts.recomputed > 0 ? fmt::format("recomputed: {} results; ", facts.recomputed)
                               : "nothing recomputed: ") +
         facts.memory_text + peak;
}

std::string limit_message(const OpenConfig& variant, int64_t limit_bytes, int64_t unlimited_bytes) {
  return fmt::format(
      "memory: {:.1f} MiB planned, {:.1f} MiB measured, within {:.1f} MiB; {:.1f} MiB were planned "
      "without the limit",
      in_mebibytes(variant.facts().planned_bytes),
      in_mebibytes(variant.worker().measured_bytes()),
      in_mebibytes(limit_bytes),
      in_mebibytes(unlimited_bytes));
}

}  // namespace ridge
