#include "ridge/tune/engine/guard/configs.h"

#include <algorithm>
#include <array>

#include "ridge/base/settings.h"
#include "ridge/config/text.h"
#include "ridge/data/batch_planner.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuning.h"
#include "ridge/train/memory_limit.h"
#include "ridge/tune/engine/guard/guard.h"
#include "ridge/tune/engine/guard/trajectory.h"

namespace ridge {
namespace {

// Each builds a program: a search is bounded by what a trial may take.
constexpr int64_t kBisections = 12;

// Plans of the reference that must be free for an oracle in as few parts, and parts else.
constexpr int64_t kOracleRoom = 3, kOracleParts = 8;

// From thorough to the least that still shows a mini-batch noise, an error of a slope and a margin.
struct Effort {
  int64_t rounds, batches, pairs, run_steps;
};
constexpr std::array kEfforts = {Effort{3, 3, 5, 40},
                                 Effort{2, 3, 5, 24},
                                 Effort{1, 3, 5, 16},
                                 Effort{1, 2, 4, 12},
                                 Effort{1, 2, 3, 8}};

/// The most thorough that keeps within `most_steps`, or the least.
void set_effort(GuardOptions& options, int64_t most_steps) {
  for (const Effort& effort : kEfforts) {
    options.rounds = effort.rounds;
    options.batches = effort.batches;
    options.pairs = effort.pairs;
    options.run_steps = effort.run_steps;
    if (most_guard_steps(options) <= most_steps) return;
  }
}

/// What all comparisons of one request share.
class Guarding {
 public:
  explicit Guarding(const GuardRequest& request)
      : config_(read_variant(request.reference)),
        task_(open_task(config_)),
        tuning_(config_.train.device, false),
        reference_(config_, options_of(config_)),
        oracle_(oracle(), options_of(oracle_config(config_))) {
    guard_options_.semantic_class = request.semantic_class;
    guard_options_.optimizer = config_.optimizer;
    guard_options_.schedule = config_.schedule;
    guard_options_.total_steps = steps_of_run();
    set_effort(guard_options_, request.most_steps);
  }

  GuardReport whole(const TrainConfig& candidate) { return run(candidate, guard); }
  GuardReport steps(const TrainConfig& candidate) { return run(candidate, guard_steps); }
  std::vector<std::string> low_modules_of(const TrainConfig& candidate) {
    return TrainingVariant(candidate, options_of(candidate)).low_modules();
  }

 private:
  int64_t steps_of_run() const {
    return std::max<int64_t>(1, total_steps(config_, *task_.train_data));
  }
  // The truth is the same in smaller parts, where a device has no room for two such programs and
  // one whose numbers are twice as long.
  TrainConfig oracle() const {
    TrainConfig oracle = oracle_config(config_);
    const std::optional<int64_t> free = free_device_memory(config_.train.device);
    const int64_t planned = reference_.run().program().plan().total_bytes();
    if (free && *free < kOracleRoom * planned && can_use_micro_batches(config_, task_))
      oracle.train.micro = std::min(oracle.train.batch, kOracleParts * oracle.train.micro);
    return oracle;
  }
  // Each with the kernels that it would run with.
  TrainingVariantOptions options_of(const TrainConfig& config) {
    TrainingVariantOptions options;
    options.total_steps = steps_of_run();
    options.choose = tuning_.choose(kernels_of(config));
    return options;
  }
  GuardReport run(const TrainConfig& config, const auto& test) {
    TrainingVariant candidate(config, options_of(config));
    const GuardData data{.dataset = task_.train_data.get(), .plan = batch_plan(config_)};
    return test(
        {.reference = reference_, .candidate = candidate, .oracle = oracle_}, data, guard_options_);
  }

  TrainConfig config_;
  Task task_;
  Tuning tuning_;
  TrainingVariant reference_, oracle_;
  GuardOptions guard_options_;
};

}  // namespace

TrainConfig read_variant(const std::string& text) {
  TrainConfig config = load_config(text, "a variant under guard", {}, settings()).config;
  config.train.out.clear();
  return config;
}

int64_t total_steps(const TrainConfig& config, const data::Dataset& data) {
  if (config.train.steps > 0) return config.train.steps;
  return config.train.epochs * data::BatchPlanner(data, batch_plan(config)).batches_per_epoch();
}

GuardAnswer guard_configs(const GuardRequest& request) {
  if (request.semantic_class == SemanticClass::kTrajectory)
    return guard_trajectory_configs(request);
  Guarding guarding(request);
  const TrainConfig candidate = read_variant(request.candidate);
  const GuardReport report = guarding.whole(candidate);
  GuardAnswer answer{.passed = report.passed, .text = report.text, .f32_modules = {}};
  if (report.runs) {
    answer.margin = report.runs->margin;
    answer.detectable = report.runs->detectable;
    answer.power = report.runs->power;
  }
  if (report.passed || request.semantic_class != SemanticClass::kPrecision) return answer;
  TrainConfig pinned = candidate;
  const auto passes = [&](const std::vector<std::string>& modules) {
    pinned.train.f32_modules = modules;
    return guarding.steps(pinned).passed;
  };
  const GuardBisection bisection =
      bisect_modules(guarding.low_modules_of(candidate), passes, kBisections);
  if (bisection.mended) answer.f32_modules = bisection.modules;
  return answer;
}

}  // namespace ridge
