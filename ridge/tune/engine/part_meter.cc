#include "ridge/tune/engine/part_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stats.h"

namespace ridge {
namespace {

// A part that is measured alone takes so many seconds a block, and so many blocks.
constexpr double kPartSeconds = 0.08;
constexpr int kPartBlocks = 3;

// A block that takes longer is enough by itself.
constexpr double kLongPartSeconds = 1;

// A prediction rests on so many pairs of blocks: the fewer, the longer a step takes.
constexpr size_t kLeastChangePairs = 3, kMostChangePairs = 7;
constexpr double kChangeSeconds = 1.5;

// A report takes microseconds and writes a line each time: enough for the clock, and no more.
constexpr int64_t kReportedSteps = 1000;

// Queueing takes microseconds too, but each of these steps is computed.
constexpr int64_t kQueuedSteps = 8;

// A second micro-batch size may take this share of the budget.
constexpr double kLaunchShare = 0.05;

// The noise is that of so many pairs, or of those within the share of the budget.
constexpr int64_t kNoisePairs = 12;
constexpr double kNoiseShare = 0.05;

// Seconds of a block, where batches differ in length.
constexpr double kMixSeconds = 0.05;

// Blocks that are not too short for the clock; the first also warm the variant up.
int64_t part_steps(WorkerProcess& worker, StepKind kind) {
  if (kind == StepKind::kReport) return kReportedSteps;
  if (kind == StepKind::kQueue) return kQueuedSteps;
  int64_t steps = worker.facts().fair_steps;
  // Any 1, 2, 4 or all of a mix are a fair one, where its batches are nearly alike.
  for (; steps < worker.facts().mix; steps *= 2)
    if (worker.run(steps, kind).seconds > kLongPartSeconds / 2) return steps;
  while (worker.run(steps, kind).seconds < kPartSeconds / 2 && steps < int64_t{1} << 30) steps *= 2;
  return steps;
}

// Seconds of a step: the median of some blocks.
double measure_part(WorkerProcess& worker, StepKind kind, double* wait_share = nullptr) {
  const int64_t steps = part_steps(worker, kind);
  std::vector<double> seconds;
  for (int i = 0; i < kPartBlocks; ++i) {
    const Block block = worker.run(steps, kind);
    seconds.push_back(block.seconds / static_cast<double>(steps));
    if (wait_share != nullptr) *wait_share = std::min(1.0, block.waited_seconds / block.seconds);
    if (block.seconds > kLongPartSeconds) break;
  }
  return median(seconds);
}

// The change of a part: blocks in turn, and which variant is first in turn too, so that whatever
// the machine does meanwhile meets both.
PartChange measure_change(WorkerProcess& before, WorkerProcess& after, StepKind kind) {
  int64_t before_steps = part_steps(before, kind), after_steps = part_steps(after, kind);
  if (before.facts().mix > 1) before_steps = after_steps = std::max(before_steps, after_steps);
  std::vector<double> before_seconds, after_seconds;
  const auto run = [kind](WorkerProcess& worker, int64_t steps, std::vector<double>& seconds) {
    seconds.push_back(worker.run(steps, kind).seconds / static_cast<double>(steps));
  };
  const int64_t start = now_ns();
  const auto is_enough = [&] {
    const size_t pairs = before_seconds.size();
    return pairs >= kMostChangePairs ||
           (pairs >= kLeastChangePairs &&
            static_cast<double>(now_ns() - start) * 1e-9 > kChangeSeconds);
  };
  while (!is_enough()) {
    const bool before_first = before_seconds.size() % 2 == 0;
    if (before_first) run(before, before_steps, before_seconds);
    run(after, after_steps, after_seconds);
    if (!before_first) run(before, before_steps, before_seconds);
  }
  return part_change(before_seconds, after_seconds);
}

// The costs that need no clock.
StepCosts known_costs(const OpenConfig& variant, int cpus) {
  const int64_t threads = variant.resolved().settings->get_int("threads");
  // A device takes none from those that load.
  const bool is_device = variant.facts().free_device_bytes.has_value();
  return {.workers = variant.config().loader.workers,
          .threads = is_device      ? 0
                     : threads == 0 ? cpus
                                    : threads,
          .samples = samples_per_step(variant.facts())};
}

}  // namespace

std::optional<double> queue_seconds(OpenConfig& variant) {
  if (!variant.facts().free_device_bytes) return std::nullopt;
  return measure_part(variant.worker(), StepKind::kQueue);
}

// The same variant twice: what the machine adds to a pair by itself.
void PartMeter::measure_noise(const LoopView& loop,
                              OpenConfig& best,
                              OpenConfig& twin,
                              uint64_t seed) {
  const double seconds = std::min(kNoiseShare * loop.budget.total(), loop.budget.left());
  TrialOptions options = trial_until(LoopBudget::deadline(seconds), seed);
  options.least_steps = least_steps(best.facts().mix);
  options.most_pairs = kNoisePairs;
  const TrialResult trial = compare(best, twin, options);
  const std::optional<double> noise = pair_noise(trial);
  if (!noise) {
    loop.summary.notes.emplace_back("others take this machine's CPU time: few verdicts will stand");
    return;
  }
  costs_.noise = loop.noise = std::max(*noise, 0.005);
  constexpr double kShown = 0.05;
  const int64_t most = TrialOptions{}.most_pairs;
  const int64_t pairs = pairs_for_power({}, std::log1p(kShown), std::max(*noise, 1e-4), 0.9, most);
  loop.observer.on_message(fmt::format(
      "noise: pairs of the same program differ by {:.1f} %; a gain of 5 % would take {} pairs of "
      "{:.1f} s",
      100 * *noise,
      pairs == most ? fmt::format("more than {}", most) : fmt::format("about {}", pairs),
      4 * static_cast<double>(trial.steps) * trial.before_seconds));
}

// A second number of micro-batches tells what each of them costs whatever its size. Twice as many
// always fit into the memory; where a batch cannot be taken apart, there is nothing to tell.
void PartMeter::measure_launches(const LoopView& loop, OpenConfig& best, const OpenParts& open) {
  const VariantFacts facts = best.facts();
  const int64_t more = 2 * facts.micro;
  const double seconds = 1.5 * facts.open_seconds + kChangeSeconds + 8 * costs_.compute;
  if (more > facts.batch || seconds > kLaunchShare * loop.budget.total()) return;
  try {
    const std::unique_ptr<OpenConfig> other = open(more);
    if (other->facts().micro != more) return;
    batch_ = batch_costs(costs_.compute,
                         measure_change(best.worker(), other->worker(), StepKind::kKept),
                         facts.micro,
                         more,
                         facts.batch);
  } catch (const VariantFailed&) {
    return best.revive();
  } catch (const UserError&) {
    return;
  }
  loop.report(
      fmt::format("a micro-batch costs {:.3g} ms (give or take {:.2g}) + {:.3g} ms a sample: "
                  "what only saves launches gains {:.2f} at most",
                  1e3 * batch_->launch,
                  1e3 * batch_->launch_error,
                  1e3 * batch_->sample,
                  launching_ceiling(costs_, *batch_, facts.micro)));
}

void PartMeter::measure_best(OpenConfig& best, bool loads) {
  WorkerProcess& worker = best.worker();
  const double noise = costs_.noise;
  costs_ = known_costs(best, cpus_);
  costs_.noise = noise;
  costs_.step = measure_part(worker, StepKind::kTrain, &costs_.wait_share);
  costs_.compute = measure_part(worker, StepKind::kKept);
  costs_.load = measure_part(worker, StepKind::kLoad);
  costs_.host = measure_part(worker, StepKind::kNoKernel);
  costs_.report = measure_part(worker, StepKind::kReport);
  // A device waits for the host after a step that is reported; else it computes meanwhile.
  if (best.facts().free_device_bytes) costs_.report += costs_.host;
  if (!loads) batch_.reset();
  note_block_steps(costs_, best.facts());
}

StepChange PartMeter::measure(OpenConfig& best, OpenConfig& candidate, bool loads) {
  const StepCosts known = known_costs(candidate, cpus_);
  StepChange step{.compute = {},
                  .load = {.log_ratio = std::log(known.samples / costs_.samples)},
                  .workers_after = known.workers,
                  .threads_after = known.threads,
                  .work = known.samples / costs_.samples};
  const StepKind kind = loads ? StepKind::kLoad : StepKind::kKept;
  (loads ? step.load : step.compute) = measure_change(best.worker(), candidate.worker(), kind);
  StepCosts costs = costs_;
  costs.workers = step.workers_after;
  costs.load *= std::exp(step.load.log_ratio);
  costs.compute *= std::exp(step.compute.log_ratio);
  note_block_steps(costs, candidate.facts());
  return step;
}

// All trials from here on, the proof among them, have blocks that suit all variants met so far.
void PartMeter::note_block_steps(const StepCosts& costs, const VariantFacts& facts) {
  block_steps_ = std::max({block_steps_, least_block_steps(costs, facts.queue), facts.fair_steps});
}

// Both variants time the same batches, so few of a mix are fair; more say better what all gain.
int64_t PartMeter::least_steps(int64_t mix) const {
  if (costs_.step <= 0) return block_steps_;
  const double steps = std::min(std::ceil(kMixSeconds / costs_.step), static_cast<double>(mix));
  return std::max(block_steps_, static_cast<int64_t>(steps));
}

}  // namespace ridge
