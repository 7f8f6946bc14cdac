// The guard rejects programs that compute something else, names the tensor, and lets through those
// that compute the same in another order.
#include "ridge/tune/engine/guard/guard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tune/guard_cases.h"

namespace ridge::test {
namespace {

// What the first failures say, for a test that fails.
std::string failures_text(const GuardReport& report) {
  std::string text = report.text;
  for (size_t i = 0; i < std::min<size_t>(report.failures.size(), 8); ++i) {
    const GuardFailure& f = report.failures[i];
    text += fmt::format("\n  {} of {}: {} against {}", name_of(f.test), f.tensor, f.value, f.limit);
  }
  return text;
}

// Rejected, with a failure of `test` at a tensor whose name begins with `tensor`.
void expect_rejected(const GuardReport& report, GuardTest test, const std::string& tensor) {
  EXPECT_FALSE(report.passed) << report.text;
  const bool is_named =
      std::any_of(report.failures.begin(), report.failures.end(), [&](const GuardFailure& failure) {
        return failure.test == test && failure.tensor.starts_with(tensor);
      });
  EXPECT_TRUE(is_named) << failures_text(report);
}

// Nothing but tensors whose names begin with `tensor` failed.
void expect_only(const GuardReport& report, const std::string& tensor) {
  for (const GuardFailure& failure : report.failures)
    EXPECT_TRUE(failure.tensor.starts_with(tensor)) << failures_text(report);
}

TrainConfig in_parts(const std::string& kind, int64_t micro) {
  TrainConfig config = guarded_config(kind);
  config.train.micro = micro;
  return config;
}

TrainingVariantOptions edited(std::function<void(ProgramGraphs&)> edit) {
  TrainingVariantOptions options;
  options.edit = std::move(edit);
  return options;
}

// The same program in f32 and in 16 bits, as a candidate of its class.
struct GuardedPrecision {
  Precision precision;
  SemanticClass semantic_class;
};
constexpr GuardedPrecision kPrecisions[] = {{Precision::kF32, SemanticClass::kReassociation},
                                            {Precision::kBf16, SemanticClass::kPrecision},
                                            {Precision::kFp16, SemanticClass::kPrecision}};

// ---- The ten mutants ----

TEST(GuardMutants, GradientTimesOnePercentInOneLayer) {
  const TrainConfig config = in_parts("mlp", 2);
  const GuardReport report =
      GuardRun(config)(config, edited([](ProgramGraphs& program) {
                         scale_gradient(program, "micro", "layers.1.weight", 1.01);
                       }));
  expect_rejected(report, GuardTest::kAccuracy, "layers.1.weight");
  expect_rejected(report, GuardTest::kSlope, "layers.1.weight");
}

TEST(GuardMutants, GradientTimesOnePercentUnderBf16) {
  const TrainConfig config = wide_gpt(2);
  TrainConfig low = config;
  low.train.precision = Precision::kBf16;
  TrainingVariantOptions options = edited([](ProgramGraphs& program) {
    scale_gradient(program, "micro", "blocks.0.mlp.up.weight", 1.01);
  });
  const GuardReport report = GuardRun(config, SemanticClass::kPrecision)(low, options);
  expect_rejected(report, GuardTest::kSlope, "blocks.0.mlp.up.weight");
  expect_only(report, "blocks.0.mlp.up.weight");
}

TEST(GuardMutants, LostBiasGradient) {
  const TrainConfig config = in_parts("gpt", 2);
  const auto lose = edited([](ProgramGraphs& program) {
    scale_gradient(program, "micro", "blocks.0.attn.out.bias", 0.0);
  });
  const GuardReport report = GuardRun(config)(config, lose);
  expect_rejected(report, GuardTest::kAccuracy, "blocks.0.attn.out.bias");
  expect_rejected(report, GuardTest::kSlope, "blocks.0.attn.out.bias");
  expect_rejected(report, GuardTest::kNoise, "blocks.0.attn.out.bias");
}

TEST(GuardMutants, NoMaster) {
  for (const GuardedPrecision& guarded : kPrecisions) {
    const TrainConfig config = guarded_config("mlp");
    TrainConfig other = config;
    other.train.precision = guarded.precision;
    Spoiled candidate(other);
    candidate.around = [](Spoiled& self, const data::Batch& batch, int64_t step) {
      const double loss = self.plain_step(batch, step);
      for (const StateEntry& entry : self.entries())
        if (entry.role == StateRole::kParameter)
          self.write(entry.name,
                     converted(converted(self.read(entry.name), DType::kBF16), DType::kF32));
      return loss;
    };
    GuardRun run(config, guarded.semantic_class);
    expect_rejected(run(candidate), GuardTest::kUpdate, "layers.0.weight");
  }
}

// The mean of the parts' means, where parts of 16 samples in 3 have 6, 5 and 5.
TEST(GuardMutants, WrongWeightOfAMicroBatch) {
  const TrainConfig whole = guarded_config("mlp"), parts = in_parts("mlp", 3);
  const GuardReport report =
      GuardRun(whole)(parts, edited([&](ProgramGraphs& program) {
                        for (const char* name : {"layers.0.weight", "layers.0.bias", "head.weight"})
                          scale_gradient(program, "micro.5", name, 6.0 / 5.0);
                      }));
  for (const char* name : {"layers.0.weight", "layers.0.bias", "head.weight"})
    expect_rejected(report, GuardTest::kAccuracy, name);
}

TEST(GuardMutants, DroppedTail) {
  TrainConfig config = in_parts("gpt", 2);
  config.data.samples = 152;  // the rest of 8 samples has parts of 4, as half of a batch has
  Spoiled candidate(config);
  candidate.around = [](Spoiled& self, const data::Batch& batch, int64_t step) {
    data::Batch shorter = batch;
    if (batch.count == 16) shorter.count = 8;
    return self.plain_step(shorter, step);
  };
  GuardRun run(config);
  expect_rejected(run(candidate), GuardTest::kAccuracy, "tokens.weight");
}

TEST(GuardMutants, DropoutOff) {
  for (const char* kind : {"mlp", "gpt"}) {
    const TrainConfig config = guarded_config(kind);
    TrainConfig without = config;
    without.model.mlp.dropout = without.model.gpt.dropout = 0;
    const GuardReport report = GuardRun(config)(without);
    expect_rejected(report, GuardTest::kNoise, kind == std::string("mlp") ? "layers.0" : "blocks");
  }
}

// The results of the guarded update, without the guard.
TEST(GuardMutants, IgnoredOverflow) {
  const auto ignore = edited([](ProgramGraphs& program) {
    for (const char* name : {"head.weight.new", "head.weight.m.new", "head.weight.v.new"})
      change_output(program, "step", name, [](Graph&, Node& where) { return where.inputs[1]; });
  });
  const TrainConfig config = guarded_config("cnn");
  const GuardReport report = GuardRun(config)(config, ignore);
  expect_rejected(report, GuardTest::kOverflow, "head.weight");
  expect_only(report, "head.weight");
  TrainConfig low = config;
  low.train.precision = Precision::kFp16;
  expect_rejected(GuardRun(config, SemanticClass::kPrecision)(low, ignore),
                  GuardTest::kOverflow,
                  "head.weight");
}

// The loss is finite, and its scaled gradient is not: a program that looks at the loss alone lets
// into a parameter what is not finite.
TEST(GuardMutants, IgnoredOverflowOfAScaledGradient) {
  const TrainConfig config = wide_gpt(2);
  TrainConfig low = config;
  low.train.precision = Precision::kFp16;
  low.train.loss_scale = 16;  // none of the steps themselves overflows
  const auto ignore = edited([](ProgramGraphs& program) {
    for (const char* name :
         {"positions.weight.new", "positions.weight.m.new", "positions.weight.v.new"})
      change_output(program, "apply", name, [](Graph& graph, Node& old) {
        const Value loss{graph.find_input("sum.loss"), 0};
        return where(is_finite(loss), old.inputs[1], old.inputs[2]);
      });
  });
  GuardRun run(config, SemanticClass::kPrecision);
  run.options.rounds = 1;
  TrainingVariant candidate(low, {.total_steps = kGuardedSteps, .edit = ignore.edit});
  const GuardReport report = run(candidate, guard_steps);
  expect_rejected(report, GuardTest::kOverflow, "positions.weight");
  expect_only(report, "positions.weight");
  TrainingVariant honest(low, {.total_steps = kGuardedSteps});
  const GuardReport passed = run(honest, guard_steps);
  EXPECT_TRUE(passed.passed) << failures_text(passed);
}

TEST(GuardMutants, StaleStatistics) {
  const TrainConfig config = guarded_config("cnn");
  const auto stale = edited([](ProgramGraphs& program) {
    change_output(program, "step", "stages.0.0.first.norm.variance.new", [](Graph& graph, Node&) {
      return Value{graph.find_input("stages.0.0.first.norm.variance"), 0};
    });
  });
  for (const GuardedPrecision& guarded : kPrecisions) {
    TrainConfig other = config;
    other.train.precision = guarded.precision;
    const GuardReport report = GuardRun(config, guarded.semantic_class)(other, stale);
    expect_rejected(report, GuardTest::kAccuracy, "stages.0.0.first.norm.variance");
    if (guarded.semantic_class == SemanticClass::kReassociation) {
      expect_rejected(report, GuardTest::kSlope, "stages.0.0.first.norm.variance");
      expect_only(report, "stages.0.0.first.norm.variance");
    }
  }
}

TEST(GuardMutants, Epsilon) {
  for (const GuardedPrecision& guarded : kPrecisions) {
    const TrainConfig config = wide_gpt(1);
    TrainConfig other = config;
    other.train.precision = guarded.precision;
    other.optimizer.eps = 1e-5;
    const GuardReport report = GuardRun(config, guarded.semantic_class)(other);
    expect_rejected(report, GuardTest::kUpdate, "blocks.0.mlp.up.weight: update");
    for (const GuardFailure& failure : report.failures)
      EXPECT_EQ(failure.test, GuardTest::kUpdate) << failures_text(report);
  }
}

TEST(GuardMutants, ScheduleOffByOne) {
  const TrainConfig config = guarded_config("mlp");
  for (const GuardedPrecision& guarded : kPrecisions) {
    GuardRun run(config, guarded.semantic_class);
    TrainConfig other = config;
    other.train.precision = guarded.precision;
    TrainingVariant shorter_run(other, {.total_steps = kGuardedSteps - 1});
    expect_rejected(run(shorter_run), GuardTest::kUpdate, "layers.0.weight: update");
    other.schedule.warmup += 1;
    expect_rejected(run(other), GuardTest::kUpdate, "layers.0.weight: update");
  }
  // The step number itself, in a program where nothing else depends on it.
  TrainConfig plain = config;
  plain.model.mlp.dropout = 0;
  plain.schedule = {};
  Spoiled late(plain);
  late.around = [](Spoiled& self, const data::Batch& batch, int64_t step) {
    return self.plain_step(batch, step + 1);
  };
  expect_rejected(GuardRun(plain)(late), GuardTest::kUpdate, "layers.0.weight: update");
}

TEST(GuardMutants, GradientsThatAreNotCleared) {
  const TrainConfig config = in_parts("mlp", 2);
  const GuardReport report = GuardRun(config)(
      config, edited([](ProgramGraphs& program) {
        change_output(program, "apply", "head.bias.grad.new", [](Graph& graph, Node&) {
          return Value{graph.find_input("head.bias.grad"), 0};
        });
      }));
  expect_rejected(report, GuardTest::kExact, "head.bias.grad");
}

TEST(GuardMutants, OtherOptimizers) {
  TrainConfig config = in_parts("mlp", 2);
  config.optimizer.kind = nn::OptimizerKind::kSgd;
  config.optimizer.lr = 0.05;
  const auto scale = edited(
      [](ProgramGraphs& program) { scale_gradient(program, "micro", "layers.1.weight", 1.01); });
  for (const double momentum : {0.9, 0.0}) {
    config.optimizer.momentum = momentum;
    GuardRun run(config);
    EXPECT_TRUE(run(config).passed);
    expect_rejected(run(config, scale), GuardTest::kSlope, "layers.1.weight");
    TrainConfig faster = config;
    faster.optimizer.lr *= 1.001;
    expect_rejected(
        run(faster), momentum > 0 ? GuardTest::kUpdate : GuardTest::kAccuracy, "layers.1.weight");
  }
}

}  // namespace
}  // namespace ridge::test
