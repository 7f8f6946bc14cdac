// What the configuration costs as it is: its parts, the noise of the machine, and a plan that keeps
// within a limit of memory.
#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stats.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// Of a part that is measured alone.
constexpr double kPartSeconds = 0.08;
constexpr int kPartBlocks = 3;

// A block that takes longer is enough by itself.
constexpr double kLongPartSeconds = 1;

// Pairs of such blocks that a prediction rests on: the fewer, the longer a step takes.
constexpr size_t kLeastChangePairs = 3, kMostChangePairs = 7;
constexpr double kChangeSeconds = 1.5;

// Of the budget, for a second micro-batch size.
constexpr double kLaunchShare = 0.05;

// Pairs, and the share of the budget for them.
constexpr int64_t kNoisePairs = 12;
constexpr double kNoiseShare = 0.05;

// Times that a plan is made for a limit, each with what the one before needed besides.
constexpr int kFits = 3;

// Telling takes microseconds and writes a line each time: enough for the clock, and no more.
constexpr int64_t kToldSteps = 1000;

// Queueing takes microseconds too, but each of these steps is computed.
constexpr int64_t kQueuedSteps = 8;

// What a limit made of a plan.
std::string memory_text(const VariantFacts& facts) {
  if (facts.memory_text.empty()) return "the plan is within the limit as it is";
  return (facts.made_again > 0 ? fmt::format("made again: {} results; ", facts.made_again)
                               : "nothing made again: ") +
         facts.memory_text;
}

}  // namespace

// Blocks that are not too short for the clock; the first also warm the variant up.
int64_t Optimizer::part_steps(WorkerProcess& worker, StepKind kind) {
  if (kind == StepKind::kTell) return kToldSteps;
  if (kind == StepKind::kQueue) return kQueuedSteps;
  int64_t steps = worker.facts().fair_steps;
  // Any 1, 2, 4 or all of a mix are a fair one, where its batches are nearly alike.
  for (; steps < worker.facts().mix; steps *= 2)
    if (worker.run(steps, kind).seconds > kLongPartSeconds / 2) return steps;
  while (worker.run(steps, kind).seconds < kPartSeconds / 2 && steps < int64_t{1} << 30) steps *= 2;
  return steps;
}

// Seconds of a step: the median of some blocks.
double Optimizer::measure(WorkerProcess& worker, StepKind kind, double* wait_share) {
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

// Of a part of two variants: blocks in turn, and who is first in turn too, so that what the machine
// does meanwhile meets both.
PartChange Optimizer::measure_change(WorkerProcess& before, WorkerProcess& after, StepKind kind) {
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

void Optimizer::measure_costs(OpenVariant& variant) {
  variant.costs.step = measure(*variant.worker, StepKind::kTrain, &variant.costs.wait_share);
  variant.costs.compute = measure(*variant.worker, StepKind::kKept);
  variant.costs.load = measure(*variant.worker, StepKind::kLoad);
  variant.costs.host = measure(*variant.worker, StepKind::kNoKernel);
  variant.costs.tell = measure(*variant.worker, StepKind::kTell);
  // A device waits for the host after a step that is told; else it computes meanwhile.
  if (variant.worker->facts().free_device_bytes) variant.costs.tell += variant.costs.host;
  note_block_steps(variant.costs, variant.worker->facts());
}

// All trials from here on, the proof among them, have blocks that suit all variants met so far.
void Optimizer::note_block_steps(const StepCosts& costs, const VariantFacts& facts) {
  block_steps_ = std::max({block_steps_, least_block_steps(costs, facts.queue), facts.fair_steps});
}

void Optimizer::measure_baseline() {
  measure_costs(best_);
  const StepCosts& costs = best_.costs;
  OptimizeSummary& summary = result_.summary;
  summary.baseline = speed_of(best_);
  fill_speed(summary.baseline, best_.worker->facts(), costs.step);
  summary.baseline.loader_wait_share = costs.wait_share;
  summary.baseline.timeline = timeline_of(best_, costs.step);
  summary.result = summary.baseline;
  summary.parts.push_back(
      fmt::format("baseline: {:.3g} ms a step; {:.3g} ms without the loader, "
                  "{:.3g} ms the loader alone, {:.3g} ms without kernels, {:.3g} ms to tell of it",
                  1e3 * costs.step,
                  1e3 * costs.compute,
                  1e3 * costs.load,
                  1e3 * costs.host,
                  1e3 * costs.tell));
  observer_.on_message(summary.parts.back());
  if (best_.worker->facts().free_device_bytes) measure_queue();
  summary.parts.push_back(
      fmt::format("ceilings: {:.2f} times as fast if loading were free, {:.2f} if computing were",
                  loading_ceiling(costs),
                  computing_ceiling(costs)));
  observer_.on_message(summary.parts.back());
}

// Where a device computes beside the host: which of the two the other waits for.
void Optimizer::measure_queue() {
  constexpr double kNear = 0.8;
  const double queue = measure(*best_.worker, StepKind::kQueue);
  const bool is_late = queue > kNear * best_.costs.compute;
  result_.summary.parts.push_back(fmt::format(
      "device: the host queues a step in {:.3g} ms, and the device is through in {:.3g} ms: {}",
      1e3 * queue,
      1e3 * best_.costs.compute,
      is_late ? "it waits for launches" : "launches do not hold it back"));
  observer_.on_message(result_.summary.parts.back());
}

// The same variant twice: what the machine adds to a pair by itself.
void Optimizer::measure_noise() {
  const OpenVariant twin = open(base_, 0);
  TrialOptions options = trial_options(kNoiseShare * request_.budget_seconds);
  options.most_pairs = kNoisePairs;
  const TrialResult trial = compare(*best_.worker, *twin.worker, options);
  std::vector<double> ratios;
  for (const Pair& pair : trial.pairs)
    if (!pair.dropped) ratios.push_back(pair.log_ratio());
  if (ratios.size() < 3) {
    result_.summary.notes.push_back("others take this machine's CPU time: few verdicts will stand");
    return;
  }
  const double noise = 1.4826 * median_absolute_deviation(ratios);
  noise_ = std::max(noise, 0.005);
  constexpr double kShown = 0.05;
  const int64_t most = TrialOptions{}.most_pairs;
  const int64_t pairs = pairs_for_power({}, std::log1p(kShown), std::max(noise, 1e-4), 0.9, most);
  observer_.on_message(fmt::format(
      "noise: pairs of the same program differ by {:.1f} %; a gain of 5 % would take {} pairs of "
      "{:.1f} s",
      100 * noise,
      pairs == most ? fmt::format("more than {}", most) : fmt::format("about {}", pairs),
      4 * static_cast<double>(trial.steps) * trial.before_seconds));
}

// A second number of micro-batches tells what each of them costs whatever its size. Twice as many
// always fit into the memory; where a batch cannot be taken apart, there is nothing to tell.
void Optimizer::measure_launches() {
  const VariantFacts facts = best_.worker->facts();
  const int64_t more = 2 * facts.micro;
  const double seconds = 1.5 * facts.open_seconds + kChangeSeconds + 8 * best_.costs.compute;
  if (more > facts.batch || seconds > kLaunchShare * request_.budget_seconds) return;
  const std::vector<ConfigFlag> change = {
      {"train.micro", fmt::format("{}", more), "ridge optimize"}};
  Recipe recipe = best_.recipe;
  recipe.set(change[0].key, change[0].value);
  try {
    const OpenVariant other = open(recipe, 0, change);
    if (other.worker->facts().micro != more) return;
    batch_ = batch_costs(best_.costs.compute,
                         measure_change(*best_.worker, *other.worker, StepKind::kKept),
                         facts.micro,
                         more,
                         facts.batch);
  } catch (const WorkerFailed&) {
    return reopen(best_);
  } catch (const UserError&) {
    return;
  }
  std::vector<std::string>& parts = result_.summary.parts;
  parts.push_back(
      fmt::format("a micro-batch costs {:.3g} ms (give or take {:.2g}) + {:.3g} ms a sample: what "
                  "only saves launches gains {:.2f} at most",
                  1e3 * batch_->launch,
                  1e3 * batch_->launch_error,
                  1e3 * batch_->sample,
                  launching_ceiling(best_.costs, *batch_, facts.micro)));
  observer_.on_message(parts.back());
}

// Only where there are parts to do without.
void Optimizer::measure_room() {
  const VariantFacts& facts = best_.worker->facts();
  fewest_parts_ = 0;
  if (facts.micro > 1 && facts.free_device_bytes && request_.memory_bytes == 0)
    fewest_parts_ = best_.worker->fewest_parts();
}

// A plan that keeps within the limit, whatever it costs: micro-batches and results made again. What
// the process needs besides (code, tables of kernels) is small, and known once it has run.
void Optimizer::fit_memory() {
  memory_text_ = memory_text(best_.worker->facts());
  if (request_.memory_bytes == 0) return;
  const int64_t before = best_.worker->facts().planned_bytes;
  int64_t besides = best_.worker->facts().staging_bytes;
  for (int attempt = 0; attempt < kFits; ++attempt) {
    const int64_t mebibytes = (request_.memory_bytes - besides) >> 20;
    if (mebibytes < 1)
      throw UserError(fmt::format("--memory is {:.1f} MiB, and {:.1f} MiB of it are needed besides "
                                  "the plan: for batches that the loader stages, and code",
                                  in_mebibytes(request_.memory_bytes),
                                  in_mebibytes(besides)),
                      "give it more, or lower loader.prefetch");
    base_.set("train.memory_limit", fmt::format("{}", mebibytes));
    best_ = {};  // its memory, before that of the next is taken
    best_ = open(base_, 0);
    const int64_t over = best_.worker->measured_bytes() - request_.memory_bytes;
    if (over <= 0) break;
    besides += over + (int64_t{1} << 20);
  }
  const VariantFacts& facts = best_.worker->facts();
  memory_text_ = memory_text(facts) + fmt::format("; peak {:.1f} -> {:.1f} MiB",
                                                  in_mebibytes(before),
                                                  in_mebibytes(facts.planned_bytes));
  observer_.on_message(
      fmt::format("memory: {:.1f} MiB planned, {:.1f} MiB measured, within {:.1f} MiB; "
                  "{:.1f} MiB were planned without the limit",
                  in_mebibytes(best_.worker->facts().planned_bytes),
                  in_mebibytes(best_.worker->measured_bytes()),
                  in_mebibytes(request_.memory_bytes),
                  in_mebibytes(before)));
}

}  // namespace ridge
