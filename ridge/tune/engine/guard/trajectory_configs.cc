// The guard of a trajectory over two configurations.
#include <algorithm>
#include <array>

#include "ridge/data/batch_planner.h"
#include "ridge/run/tuning.h"
#include "ridge/train/training_run.h"
#include "ridge/tune/engine/guard/trajectory.h"

namespace ridge {
namespace {

// With fewer updates after its warm-up a candidate has not begun to train.
constexpr int64_t kLeastUpdates = 40;

// From those that leave chance little room to the least that has some power: where an order of the
// samples moves both sides in the same way, a few pairs will do.
constexpr std::array<int64_t, 3> kPairs = {12, 8, 6};

// Samples to evaluate on: enough for a mean, and a small part of the cost of a run.
constexpr int64_t kLeastHeldOut = 256, kHeldOutShare = 10;
// What evaluations may add to a run.
constexpr double kEvaluating = 1.15;

/// Samples that no run trains on: the same ones for both sides.
class HeldOut {
 public:
  HeldOut(const data::Dataset& data, const TrainConfig& config, int64_t most)
      : loader_(data,
                {.batch = eval_batch(config, data),
                 .shuffle = true,
                 .seed = config.train.seed,
                 .drop_last = false,
                 .repeat = false},
                {}),
        most_(most) {}

  double loss(TrainingRun& run) {
    loader_.seek({});
    StepResult sums;
    for (int64_t seen = 0; seen < most_;) {
      const data::Batch& batch = loader_.next();
      if (batch.count == 0) break;
      run.evaluate(batch, sums);
      seen += batch.count;
    }
    return sums.loss / sums.count;
  }

 private:
  data::Loader loader_;
  int64_t most_;
};

/// What the budget allows; no pairs where that is too little to tell.
struct Extent {
  int64_t pairs = 0, samples = 0, wanted = 0, run_samples = 0;
};

/// Samples of a step, in the mean.
double step_samples(const TrainConfig& config, const data::Dataset& data) {
  const data::BatchPlanner planner(data, batch_plan(config));
  return static_cast<double>(planner.samples_per_epoch()) /
         static_cast<double>(planner.batches_per_epoch());
}

Extent extent_of(const TrainConfig& reference,
                 const TrainConfig& candidate,
                 const data::Dataset& data,
                 int64_t most_steps) {
  const RunOptions& run = reference.train;
  const double of_reference = step_samples(reference, data);
  const double of_candidate = step_samples(candidate, data);
  const auto samples = [](double of_step, int64_t steps) {
    return static_cast<int64_t>(of_step * static_cast<double>(steps));
  };
  Extent extent;
  extent.run_samples = run.steps > 0 ? samples(of_reference, run.steps) : run.epochs * data.size();
  extent.wanted = std::min(extent.run_samples,
                           samples(of_candidate, candidate.schedule.warmup + kLeastUpdates));
  const double all = static_cast<double>(most_steps) * of_reference / kEvaluating;
  for (const int64_t pairs : kPairs) {
    const auto each = static_cast<int64_t>(all / static_cast<double>(2 * pairs));
    extent.samples = aligned_samples(std::min(each, extent.run_samples),
                                     data.size(),
                                     std::max(run.batch, candidate.train.batch));
    if (each < extent.wanted) continue;
    extent.pairs = pairs;
    break;
  }
  return extent;
}

TrainingVariantOptions options_of(const TrainConfig& config,
                                  const data::Dataset& data,
                                  Tuning& tuning) {
  TrainingVariantOptions options;
  options.total_steps = std::max<int64_t>(1, total_steps(config, data));
  options.choose = tuning.choose(kernels_of(config));
  return options;
}

}  // namespace

GuardAnswer guard_trajectory_configs(const GuardRequest& request) {
  TrainConfig reference = read_variant(request.reference);
  TrainConfig candidate = read_variant(request.candidate);
  const Task task = open_task(reference);
  const Extent extent = extent_of(reference, candidate, *task.train_data, request.most_steps);
  if (extent.pairs == 0)
    return {.passed = false,
            .can_tell = false,
            .text = fmt::format("cannot tell: runs of {} samples would be needed, and the budget "
                                "allows {}; --budget gives more",
                                extent.wanted,
                                extent.samples),
            .f32_modules = {}};
  if (task.eval_data != nullptr)
    reference.train.eval_batch = candidate.train.eval_batch =
        eval_batch(reference, *task.eval_data);
  Tuning tuning(reference.train.device, false);
  TrainingVariant before(reference, options_of(reference, *task.train_data, tuning));
  TrainingVariant after(candidate, options_of(candidate, *task.train_data, tuning));
  std::unique_ptr<HeldOut> held_out;
  if (task.eval_data != nullptr)
    held_out = std::make_unique<HeldOut>(
        *task.eval_data, reference, std::max(kLeastHeldOut, extent.samples / kHeldOutShare));
  const auto side = [&](TrainingVariant& variant, const TrainConfig& config) {
    TrajectorySide result{.variant = variant, .plan = batch_plan(config)};
    if (held_out) result.held_out = [&variant, &held_out] { return held_out->loss(variant.run()); };
    return result;
  };
  const GuardReport report = guard_trajectory(
      side(before, reference),
      side(after, candidate),
      *task.train_data,
      {.pairs = extent.pairs, .samples = extent.samples, .run_samples = extent.run_samples});
  return {.passed = report.passed,
          .can_tell = report.passed || report.runs->lower > report.runs->margin,
          .text = report.text,
          .margin = report.runs->margin,
          .detectable = report.runs->detectable,
          .power = report.runs->power,
          .f32_modules = {}};
}

}  // namespace ridge
