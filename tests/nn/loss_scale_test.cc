// The loss scale: what an overflow leaves alone, how the scale moves, and where it gives up.
#include "ridge/nn/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridge/compile/pipeline.h"
#include "tests/nn/program_run.h"
#include "tests/support/errors.h"

namespace ridge::test {
namespace {

constexpr int64_t kSamples = 8;

enum class Kind : uint8_t { kMlp, kCnn };

// A regression, or images with batch norm.
nn::Training make_training(Kind kind, nn::LossScaleOptions scale) {
  nn::ModelOptions options;
  nn::SampleTypes types{{DType::kF32, {6}}, {DType::kF32, {2}}};
  options.mlp = {.hidden = {9}, .outputs = 2};
  if (kind == Kind::kCnn) {
    options.kind = nn::ModelKind::kCnn;
    options.cnn = {.widths = {3}, .blocks = 1, .outputs = 4};
    types = {{DType::kF32, {5, 6, 2}}, {DType::kI64, {}}};
  }
  nn::OptimizerOptions optimizer;
  optimizer.lr = 0.01;
  optimizer.clip = 1.0;
  return {nn::make_model(options, types), optimizer, scale};
}

Graph rounded(Graph graph) {
  run_pipeline(graph, *make_backend("cpu"), {.precision = DType::kF16});
  return graph;
}

// Runs steps in one go, or in two parts.
class Steps {
 public:
  Steps(const nn::Training& training, bool in_parts)
      : training_(training),
        parts_(in_parts ? 2 : 1),
        run_("cpu", training.initial_state(in_parts, 3)) {
    if (in_parts) {
      graphs_.push_back(rounded(training.micro(kSamples / 2)));
      graphs_.push_back(rounded(training.apply()));
    } else {
      graphs_.push_back(rounded(training.step(kSamples)));
    }
  }

  // Targets are `size`, or in the second half of the batch `second`.
  NamedTensors step(double size, double second) {
    NamedTensors data = batch(size, second);
    const auto skipped =
        training_.has_loss_scale() ? static_cast<int64_t>(scalar(nn::kSkippedSteps)) : 0;
    data.emplace("hyper", training_.hyper({}, {.total_steps = 10, .skipped = skipped}));
    if (parts_ == 1) return run_.run(graphs_[0], data);
    for (int64_t part = 0; part < parts_; ++part) {
      NamedTensors half;
      for (const char* name : {"x", "y"})
        half.emplace(name, rows(data.at(name), part * kSamples / 2, kSamples / 2));
      run_.run(graphs_[0], half);
    }
    return run_.run(graphs_[1], data);
  }
  NamedTensors step(double size) { return step(size, size); }

  NamedTensors& state() { return run_.state(); }
  double scalar(std::string_view name) { return state().at(std::string(name)).at(0); }

 private:
  NamedTensors batch(double size, double second) const {
    NamedTensors data;
    for (const auto& [name, type] : {std::pair{"x", training_.model().sample().x},
                                     std::pair{"y", training_.model().sample().y}}) {
      TensorType batched = type;
      batched.shape.insert(batched.shape.begin(), kSamples);
      Tensor tensor(batched);
      const int64_t half = tensor.elements() / 2;
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        const double value = std::sin(static_cast<double>(3 * i + 1));
        if (name == std::string("x"))
          tensor.set(i,
                     is_float(training_.model().sample().y.dtype)
                         ? value
                         : value * (i < half ? size : second));
        else if (is_float(type.dtype))
          tensor.set(i, i < half ? size : second);
        else
          tensor.set(i, static_cast<double>(i % 4));
      }
      data.emplace(name, std::move(tensor));
    }
    return data;
  }

  const nn::Training& training_;
  int64_t parts_;
  ProgramRun run_;
  std::vector<Graph> graphs_;
};

bool is_scale(const std::string& name) { return name.starts_with("loss_scale"); }

void expect_kept(const NamedTensors& before, const NamedTensors& after) {
  for (const auto& [name, tensor] : before) {
    if (is_scale(name)) continue;
    EXPECT_TRUE(after.at(name).same_bits(tensor)) << name;
  }
}

bool parameters_moved(const nn::Training& training, const NamedTensors& a, const NamedTensors& b) {
  for (const nn::ParameterSpec& spec : training.parameters())
    if (!a.at(spec.name).same_bits(b.at(spec.name))) return true;
  return false;
}

// Errors of 1e4 times a scale of 65536 are far beyond f16: the scale falls, nothing else moves, and
// then training goes on.
TEST(LossScale, HugeTargetsAreSkippedUntilTheScaleFits) {
  for (const bool in_parts : {false, true}) {
    const nn::Training training = make_training(Kind::kMlp, {.initial = 65536});
    Steps steps(training, in_parts);
    steps.state().at("loss_scale").set(0, 16.0);
    steps.step(0.1);  // so that the moments are not zero
    double scale = 65536.0;
    steps.state().at("loss_scale").set(0, scale);
    int64_t skipped = 0;
    for (; skipped < 30; ++skipped) {
      const NamedTensors before = steps.state();
      const NamedTensors results = steps.step(1e4);
      EXPECT_TRUE(std::isfinite(results.at("loss").at(0)));
      EXPECT_EQ(steps.scalar("halted"), 0.0);
      if (std::isfinite(results.at("grad_norm").at(0))) {
        EXPECT_TRUE(parameters_moved(training, before, steps.state()));
        break;
      }
      expect_kept(before, steps.state());
      EXPECT_EQ(steps.scalar("loss_scale"), scale / 2);
      EXPECT_EQ(steps.scalar("loss_scale.good"), 0.0);
      scale /= 2;
    }
    // 2e4 times the scale must not reach 65520: 2 at most.
    EXPECT_EQ(scale, 2.0);
    EXPECT_EQ(skipped, 15);
    EXPECT_EQ(steps.scalar("loss_scale.skipped"), 15.0);
    EXPECT_EQ(steps.scalar("loss_scale.good"), 1.0);
  }
}

// One part that overflows costs the whole step.
TEST(LossScale, AnyPartSkipsTheStep) {
  const nn::Training training = make_training(Kind::kMlp, {.initial = 1024});
  for (const bool is_first : {false, true}) {
    Steps steps(training, true);
    steps.step(0.1);
    const NamedTensors before = steps.state();
    steps.step(is_first ? 1e4 : 0.1, is_first ? 0.1 : 1e4);
    expect_kept(before, steps.state());
    EXPECT_EQ(steps.scalar("loss_scale"), 512.0);
    // The sums keep nothing of the step that overflowed.
    steps.step(0.1);
    EXPECT_TRUE(parameters_moved(training, before, steps.state()));
    EXPECT_EQ(steps.scalar("halted"), 0.0);
  }
}

// Statistics of batch norm follow the steps that count, in parts too.
TEST(LossScale, StatisticsFollowTheStepsThatCount) {
  const auto statistics_moved = [](const nn::Training& training, Steps& steps, auto&& before) {
    bool moved = false;
    for (const nn::StatisticSpec& spec : training.statistics())
      moved = moved || !before.at(spec.name).same_bits(steps.state().at(spec.name));
    return moved;
  };
  for (const bool in_parts : {false, true}) {
    const nn::Training training = make_training(Kind::kCnn, {.initial = 0x1p100});
    Steps steps(training, in_parts);
    const NamedTensors before = steps.state();
    steps.step(1.0);
    expect_kept(before, steps.state());
    EXPECT_EQ(steps.scalar("loss_scale"), 0x1p99);
    steps.state().at("loss_scale").set(0, 16.0);
    steps.step(1.0);
    EXPECT_EQ(steps.scalar("loss_scale"), 16.0);
    EXPECT_TRUE(statistics_moved(training, steps, before));
  }
}

// Two parts move the statistics as they do without a scale.
TEST(LossScale, StatisticsInPartsAreThoseWithoutAScale) {
  const nn::Training scaled = make_training(Kind::kCnn, {.initial = 16});
  const nn::Training plain = make_training(Kind::kCnn, {});
  Steps with(scaled, true), without(plain, true);
  with.step(1.0, 2.0);
  without.step(1.0, 2.0);
  for (const nn::StatisticSpec& spec : plain.statistics())
    for (int64_t i = 0; i < without.state().at(spec.name).elements(); ++i)
      EXPECT_NEAR(with.state().at(spec.name).at(i), without.state().at(spec.name).at(i), 1e-6)
          << spec.name;
}

TEST(LossScale, GrowsAfterGoodStepsInARow) {
  const nn::Training training = make_training(Kind::kMlp, {.initial = 4, .growth_interval = 3});
  Steps steps(training, false);
  std::vector<double> scales;
  for (int64_t i = 0; i < 8; ++i) {
    steps.step(i == 4 ? 1e5 : 0.1);
    scales.push_back(steps.scalar("loss_scale"));
  }
  EXPECT_EQ(scales, (std::vector<double>{4, 4, 8, 8, 4, 4, 4, 8}));
  // No further than where its reciprocal is exact; a gradient of zeros would bear it.
  for (const nn::ParameterSpec& spec : training.parameters())
    steps.state().at(spec.name) = Tensor(spec.type);
  steps.state().at("loss_scale").set(0, nn::kMostLossScale);
  steps.state().at("loss_scale.good").set(0, 2.0);
  steps.step(0.0);
  EXPECT_EQ(steps.scalar("loss_scale"), nn::kMostLossScale);
  EXPECT_EQ(steps.scalar("loss_scale.good"), 0.0);
}

// With nothing left to halve the run ends, and so it does by a loss that is not finite, which no
// scale mends.
TEST(LossScale, HaltsWhereNoScaleHelps) {
  const nn::Training training = make_training(Kind::kMlp, {.initial = 1});
  Steps steps(training, false);
  NamedTensors before = steps.state();
  steps.step(1e6);
  EXPECT_EQ(steps.scalar("halted"), 1.0);
  steps.state().at("halted").set(0, 0.0);
  expect_kept(before, steps.state());
  EXPECT_EQ(steps.scalar("loss_scale"), 1.0);
  EXPECT_EQ(steps.scalar("loss_scale.skipped"), 0.0);

  steps.state().at("loss_scale").set(0, 64.0);
  steps.step(HUGE_VAL);
  EXPECT_EQ(steps.scalar("halted"), 1.0);
  EXPECT_EQ(steps.scalar("loss_scale"), 64.0);
  steps.step(0.1);  // a halted run stays where it is
  EXPECT_EQ(steps.scalar("halted"), 2.0);
  EXPECT_EQ(steps.scalar("loss_scale"), 64.0);
  EXPECT_EQ(steps.scalar("loss_scale.good"), 0.0);
  steps.state().at("halted").set(0, 0.0);
  for (const nn::ParameterSpec& spec : training.parameters())
    EXPECT_TRUE(steps.state().at(spec.name).same_bits(before.at(spec.name)));
}

// In f32, where nothing overflows, any power of two gives the bits of none.
TEST(LossScale, IsExact) {
  const nn::Training plain = make_training(Kind::kMlp, {});
  ProgramRun want("cpu", plain.initial_state(false, 3));
  for (const double initial : {1.0, 1024.0, 65536.0}) {
    const nn::Training training = make_training(Kind::kMlp, {.initial = initial});
    ProgramRun got("cpu", training.initial_state(false, 3));
    want = ProgramRun("cpu", plain.initial_state(false, 3));
    NamedTensors data;
    for (const char* name : {"x", "y"}) {
      Tensor tensor(TensorType{DType::kF32, {kSamples, name == std::string("x") ? 6 : 2}});
      for (int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, std::cos(static_cast<double>(i)));
      data.emplace(name, std::move(tensor));
    }
    for (int64_t step = 0; step < 3; ++step) {
      const auto run = [&](const nn::Training& each, ProgramRun& program) {
        NamedTensors all = data;
        all.emplace("hyper", each.hyper({}, {.step = step, .total_steps = 10}));
        program.run(each.step(kSamples), all);
      };
      run(training, got);
      run(plain, want);
    }
    for (const nn::ParameterSpec& spec : plain.parameters())
      EXPECT_TRUE(got.state().at(spec.name).same_bits(want.state().at(spec.name)))
          << spec.name << " with " << initial;
  }
}

TEST(LossScale, OnlyPowersOfTwo) {
  for (const double initial : {3.0, 0.5, -1.0, 0x1p127, HUGE_VAL, std::nan("")})
    EXPECT_THROW(make_training(Kind::kMlp, {.initial = initial}), UserError) << initial;
  EXPECT_THROW(make_training(Kind::kMlp, {.initial = 2, .growth_interval = 0}), UserError);
  for (const StateEntry& entry : make_training(Kind::kMlp, {}).state(true))
    EXPECT_FALSE(is_scale(entry.name)) << entry.name;
}

// Skipped steps are no updates, but steps of the schedule.
TEST(LossScale, SkippedStepsAreNoUpdatesOfAdam) {
  nn::OptimizerOptions options;
  const nn::ScheduleOptions schedule{.kind = nn::ScheduleKind::kCosine, .warmup = 2};
  const nn::StepScalars with = nn::step_scalars(options, schedule, 7, 20, 3);
  const nn::StepScalars fifth = nn::step_scalars(options, schedule, 4, 20);
  const nn::StepScalars eighth = nn::step_scalars(options, schedule, 7, 20);
  EXPECT_EQ(with.lr, eighth.lr);
  EXPECT_EQ(with.keep, eighth.keep);
  EXPECT_EQ(with.root_scale, fifth.root_scale);
  EXPECT_DOUBLE_EQ(with.step_size / with.lr, fifth.step_size / fifth.lr);
  EXPECT_TRUE(std::isfinite(nn::step_scalars(options, schedule, 0, 20, 9).step_size));
}

}  // namespace
}  // namespace ridge::test
