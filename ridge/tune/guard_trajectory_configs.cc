// The guard of a trajectory over two configurations.
#include <algorithm>
#include <array>

#include "ridge/run/tuning.h"
#include "ridge/train/session.h"
#include "ridge/tune/guard_trajectory.h"

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

  double loss(Session& session) {
    loader_.seek({});
    StepResult sums;
    for (int64_t seen = 0; seen < most_;) {
      const data::Batch& batch = loader_.next();
      if (batch.count == 0) break;
      session.evaluate(batch, sums);
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

Extent extent_of(const TrainConfig& reference,
                 const TrainConfig& candidate,
                 int64_t epoch,
                 int64_t most_steps) {
  const RunOptions& run = reference.train;
  Extent extent;
  extent.run_samples = run.steps > 0 ? run.steps * run.batch : run.epochs * epoch;
  extent.wanted = std::min(extent.run_samples,
                           candidate.train.batch * (candidate.schedule.warmup + kLeastUpdates));
  const double all = static_cast<double>(most_steps) * static_cast<double>(run.batch) / kEvaluating;
  for (const int64_t pairs : kPairs) {
    const auto each = static_cast<int64_t>(all / static_cast<double>(2 * pairs));
    extent.samples = aligned_samples(
        std::min(each, extent.run_samples), epoch, std::max(run.batch, candidate.train.batch));
    if (each < extent.wanted) continue;
    extent.pairs = pairs;
    break;
  }
  return extent;
}

SessionVariantOptions options_of(const TrainConfig& config, int64_t samples, Tuning& tuning) {
  SessionVariantOptions options;
  options.total_steps = std::max<int64_t>(1, total_steps(config, samples));
  options.choose = tuning.choose();
  return options;
}

}  // namespace

GuardAnswer guard_trajectory_configs(const GuardRequest& request) {
  TrainConfig reference = read_variant(request.reference);
  TrainConfig candidate = read_variant(request.candidate);
  const Task task = open_task(reference);
  const int64_t epoch = task.train_data->size();
  const Extent extent = extent_of(reference, candidate, epoch, request.most_steps);
  if (extent.pairs == 0)
    return {.passed = false,
            .text = fmt::format("cannot tell: runs of {} samples would be needed, and the budget "
                                "allows {}; --budget gives more",
                                extent.wanted,
                                extent.samples),
            .f32_modules = {}};
  if (task.eval_data != nullptr)
    reference.train.eval_batch = candidate.train.eval_batch =
        eval_batch(reference, *task.eval_data);
  Tuning tuning(reference.train.device, false);
  SessionVariant before(reference, options_of(reference, epoch, tuning));
  SessionVariant after(candidate, options_of(candidate, epoch, tuning));
  std::unique_ptr<HeldOut> held_out;
  if (task.eval_data != nullptr)
    held_out = std::make_unique<HeldOut>(
        *task.eval_data, reference, std::max(kLeastHeldOut, extent.samples / kHeldOutShare));
  const auto side = [&](SessionVariant& variant, const TrainConfig& config) {
    TrajectorySide result{.variant = variant, .plan = batch_plan(config.train)};
    if (held_out)
      result.held_out = [&variant, &held_out] { return held_out->loss(variant.session()); };
    return result;
  };
  const GuardReport report = guard_trajectory(
      side(before, reference),
      side(after, candidate),
      *task.train_data,
      {.pairs = extent.pairs, .samples = extent.samples, .run_samples = extent.run_samples});
  return {.passed = report.passed,
          .text = report.text,
          .margin = report.runs->margin,
          .detectable = report.runs->detectable,
          .power = report.runs->power,
          .f32_modules = {}};
}

}  // namespace ridge
