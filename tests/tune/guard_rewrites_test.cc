// What computes the same passes the guard; and the parts of it that need no mutant.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/philox.h"
#include "ridge/proof/statistics.h"
#include "tests/tune/guard_cases.h"

namespace ridge::test {
namespace {

// ---- Equivalent rewrites ----

struct Rewritten {
  std::string name;
  TrainConfig reference, candidate;
  TrainingVariantOptions options = {};
};

std::vector<Rewritten> rewritten_programs() {
  std::vector<Rewritten> list;
  uint64_t seed = 0;
  const auto add = [&](const std::string& name, const std::string& kind, auto change) {
    const TrainConfig config = guarded_config(kind, 100 + ++seed % 2);
    list.push_back({kind + ", " + name, config, config});
    change(list.back());
  };
  for (const char* kind : {"mlp", "gpt"}) {
    add("two parts", kind, [](Rewritten& r) { r.candidate.train.micro = 2; });
    add("three parts", kind, [](Rewritten& r) { r.candidate.train.micro = 3; });
    add("three parts for two", kind, [](Rewritten& r) {
      r.reference.train.micro = 2;
      r.candidate.train.micro = 3;
    });
    add("one part for two", kind, [](Rewritten& r) { r.reference.train.micro = 2; });
  }
  for (const char* kind : {"mlp", "cnn", "gpt"}) {
    add("ref's kernels", kind, [](Rewritten& r) { r.candidate.train.device = "ref"; });
    add("cpu's kernels for ref's", kind, [](Rewritten& r) { r.reference.train.device = "ref"; });
    add("plain", kind, [](Rewritten& r) { r.options.program = plain_options(); });
    add("no fusion", kind, [](Rewritten& r) {
      r.options.program = ProgramOptions{};
      r.options.program->passes.off = {"all"};
    });
    add("no fusion and ref's kernels", kind, [](Rewritten& r) {
      r.options.program = plain_options();
      r.candidate.train.device = "ref";
    });
  }
  return list;
}

TEST(GuardRewrites, PassButOneInTwenty) {
  const std::vector<Rewritten> programs = rewritten_programs();
  ASSERT_GE(programs.size(), 20u);
  int rejected = 0;
  std::string texts;
  std::map<std::string, std::unique_ptr<GuardRun>> runs;  // to compile is most of the work
  for (const Rewritten& program : programs) {
    const TrainConfig& c = program.reference;
    auto& run = runs[fmt::format(
        "{} {} {} {}", name_of(c.model.kind), c.train.seed, c.train.micro, c.train.device)];
    if (run == nullptr) run = std::make_unique<GuardRun>(c);
    const GuardReport report = (*run)(program.candidate, program.options);
    if (report.passed) continue;
    ++rejected;
    texts += program.name + ": " + report.text + "\n";
  }
  EXPECT_LE(rejected * 20, static_cast<int>(programs.size())) << texts;
}

TEST(GuardRewrites, SameBits) {
  const TrainConfig config = guarded_config("cnn");
  GuardRun run(config, SemanticClass::kBitIdentical);
  Spoiled other_threads(config, {.program = plain_options()});
  other_threads.around = [](Spoiled& self, const data::Batch& batch, int64_t step) {
    const int threads = num_threads();
    set_num_threads(threads == 1 ? 3 : 1);
    const double loss = self.plain_step(batch, step);
    set_num_threads(threads);
    return loss;
  };
  const GuardReport same = run(other_threads);
  EXPECT_TRUE(same.passed) << same.text;
  TrainConfig other = config;
  other.optimizer.eps = 1.1e-8;
  const GuardReport report = run(other);
  EXPECT_FALSE(report.passed);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_EQ(report.failures[0].test, GuardTest::kHash);
}

// ---- Lower precision ----

TEST(GuardPrecision, Bf16OfAGptPasses) {
  const TrainConfig config = wide_gpt(1);
  TrainConfig low = config;
  low.train.precision = Precision::kBf16;
  const GuardReport report = GuardRun(config, SemanticClass::kPrecision)(low);
  EXPECT_TRUE(report.passed) << report.text;
  ASSERT_TRUE(report.runs.has_value());
  EXPECT_GT(report.runs->power, 0.9);
  EXPECT_LT(report.runs->upper, report.runs->margin);
  // As class 1, which it is not, it is rejected.
  EXPECT_FALSE(GuardRun(config)(low).passed);
}

// The loss scale begins too high, settles, and costs the steps under guard nothing.
TEST(GuardPrecision, Fp16OfAGptPasses) {
  const TrainConfig config = wide_gpt(1);
  TrainConfig low = config;
  low.train.precision = Precision::kFp16;
  low.train.loss_scale = 1 << 20;
  const GuardReport report = GuardRun(config, SemanticClass::kPrecision)(low);
  EXPECT_TRUE(report.passed) << report.text;
  ASSERT_TRUE(report.runs.has_value());
  EXPECT_LT(report.runs->upper, report.runs->margin);
  EXPECT_FALSE(GuardRun(config)(low).passed);
  // What is in fp16 already keeps its bits.
  const GuardReport same = GuardRun(low, SemanticClass::kBitIdentical)(low);
  EXPECT_TRUE(same.passed) << same.text;
}

TEST(GuardPrecision, WorseRunsAreRejected) {
  const TrainConfig config = guarded_config("mlp");
  TrainConfig slower = config;
  slower.optimizer.lr *= 0.5;
  TrainingVariant candidate(slower, {.total_steps = kGuardedSteps});
  GuardRun run(config, SemanticClass::kPrecision);
  const GuardReport report = run(candidate, guard_runs);
  EXPECT_FALSE(report.passed);
  ASSERT_TRUE(report.runs.has_value());
  EXPECT_GT(report.runs->difference, report.runs->margin);
  EXPECT_EQ(report.failures.at(0).test, GuardTest::kLoss);
  TrainingVariant same(config, {.total_steps = kGuardedSteps});
  const GuardReport equal = run(same, guard_runs);
  EXPECT_TRUE(equal.passed);
  EXPECT_EQ(equal.runs->difference, 0.0);
  EXPECT_EQ(equal.runs->margin, report.runs->margin);  // fixed before any candidate ran
}

TEST(GuardPrecision, ModulesAndPins) {
  TrainConfig low = wide_gpt(1);
  low.train.precision = Precision::kBf16;
  const std::vector<std::string> all = {"blocks.0.attn", "blocks.0.mlp", "head"};
  const std::vector<std::string> rest = {"blocks.0.attn", "head"};
  TrainingVariantOptions options;
  EXPECT_EQ(TrainingVariant(low, options).low_modules(), all);
  for (const std::string& pin : pins_of({"blocks.0.mlp"})) options.pins.push_back(pin);
  EXPECT_EQ(TrainingVariant(low, options).low_modules(), rest);
  EXPECT_EQ(TrainingVariant(low, options).precision().dtype, DType::kBF16);
  options.pins = pins_of(all);
  EXPECT_TRUE(TrainingVariant(low, options).precision().is_f32());
}

TEST(GuardPrecision, Tf32HasElevenBits) {
  const std::pair<double, double> kCases[] = {{1 + 0x1p-11, 1},  // ties go to even
                                              {1 + 0x1.8p-10, 1 + 0x1p-9},
                                              {-1 - 0x1.002p-11, -1 - 0x1p-10},
                                              {2 - 0x1p-23, 2},
                                              {0x1p-126, 0x1p-126},
                                              {INFINITY, INFINITY}};
  for (const auto& [from, want] : kCases) {
    Tensor x({DType::kF32, {1}});
    x.set(0, from);
    EXPECT_EQ(rounded(x, {.tf32 = true}).at(0), want) << from;
  }
  TrainingVariantOptions options;
  options.program = ProgramOptions{};
  options.program->passes.tf32 = true;
  const TrainingVariant variant(wide_gpt(1), options);
  EXPECT_TRUE(variant.precision().tf32);
  // Attention is made in f32.
  EXPECT_EQ(variant.low_modules(),
            (std::vector<std::string>{"blocks.0.attn", "blocks.0.mlp", "head"}));
}

TEST(GuardBisection, FindsTheModulesThatMatter) {
  const std::vector<std::string> modules = {"a", "b", "c", "d", "e", "f", "g", "h"};
  const auto needs = [](std::vector<std::string> needed) {
    return [needed](const std::vector<std::string>& pinned) {
      return std::all_of(needed.begin(), needed.end(), [&](const std::string& module) {
        return std::find(pinned.begin(), pinned.end(), module) != pinned.end();
      });
    };
  };
  using Names = std::vector<std::string>;
  for (const Names& needed : {Names{"c"}, Names{"a", "h"}, Names{"b", "c", "f"}, modules}) {
    const GuardBisection found = bisect_modules(modules, needs(needed), 100);
    EXPECT_TRUE(found.mended);
    EXPECT_EQ(found.modules, needed);
  }
  EXPECT_LE(bisect_modules(modules, needs({"c"}), 100).trials, 8);
  EXPECT_LE(bisect_modules(modules, needs({"b", "g"}), 100).trials, 20);
  EXPECT_FALSE(bisect_modules(modules, needs({"z"}), 100).mended);
  // Out of trials: what it has is still enough.
  const GuardBisection early = bisect_modules(modules, needs({"b", "g"}), 3);
  EXPECT_TRUE(early.mended);
  EXPECT_EQ(early.trials, 3);
  EXPECT_TRUE(needs({"b", "g"})(early.modules));
}

// ReLUs that rounding tips over make a small network's gradients noisier than the guard allows:
// a few modules in f32 mend it.
TEST(GuardBisection, PinsWhatBf16Spoils) {
  TrainConfig config = guarded_config("cnn");
  config.data.shape = {12, 12, 3};
  config.model.cnn.widths = {8, 12};
  TrainConfig low = config;
  low.train.precision = Precision::kBf16;
  GuardRun run(config, SemanticClass::kPrecision);
  run.options.rounds = 1;
  TrainingVariant all(low, {.total_steps = kGuardedSteps});
  const GuardReport report = run(all, guard_steps);
  EXPECT_FALSE(report.passed);
  for (const GuardFailure& failure : report.failures)
    EXPECT_EQ(failure.test, GuardTest::kNoise) << report.text;
  const GuardBisection found = bisect_modules(
      all.low_modules(),
      [&](const std::vector<std::string>& modules) {
        TrainingVariant candidate(low, {.total_steps = kGuardedSteps, .pins = pins_of(modules)});
        return run(candidate, guard_steps).passed;
      },
      20);
  EXPECT_TRUE(found.mended);
  EXPECT_GE(found.modules.size(), 1u);
  EXPECT_LE(found.modules.size(), all.low_modules().size() / 2);
}

// ---- Statistics ----

// Quantiles of published tables.
TEST(GuardStatistics, Student) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062, 1e-4);
  EXPECT_NEAR(student_quantile(0.95, 3), 2.35336, 1e-5);
  EXPECT_NEAR(student_quantile(0.975, 5), 2.57058, 1e-5);
  EXPECT_NEAR(student_quantile(0.9995, 10), 4.58689, 1e-5);
  EXPECT_NEAR(student_quantile(0.005, 30), -2.75000, 1e-5);
  EXPECT_NEAR(student_quantile(0.975, 1e6), 1.95997, 1e-4);
  EXPECT_NEAR(student_quantile(0.5, 7), 0.0, 1e-6);
}

// Noise in reference and candidate, with the same slope, does not bend what the oracle tells; the
// standard error is that of repeated experiments.
TEST(GuardStatistics, SlopeAndItsError) {
  constexpr int kTrials = 400, kGroups = 12, kElements = 50;
  const uint64_t key = rng_philox_key(5, 1);
  uint64_t at = 0;
  const auto normal = [&] {
    const PhiloxWords words = rng_block(key, at++, 0);
    const double u = (words.word[0] + 0.5) * 0x1p-32, v = words.word[1] * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  };
  double sum = 0, squares = 0, errors = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<GroupSums> groups(kGroups);
    for (GroupSums& group : groups)
      for (int i = 0; i < kElements; ++i) {
        const double f = normal(), r = f + 0.5 * normal(), c = 1.1 * f + 0.5 * normal();
        group.fr += f * r;
        group.fc += f * c;
      }
    const Slope slope = slope_of(groups);
    sum += slope.value;
    squares += slope.value * slope.value;
    errors += slope.error;
  }
  const double mean = sum / kTrials, deviation = std::sqrt(squares / kTrials - mean * mean);
  EXPECT_NEAR(mean, 1.1, 0.006);
  EXPECT_NEAR(errors / kTrials / deviation, 1.0, 0.12);
}

TEST(GuardOptionsChecks, StepsAreBounded) {
  for (const auto semantic_class : {SemanticClass::kBitIdentical, SemanticClass::kReassociation}) {
    const TrainConfig config = guarded_config("mlp");
    GuardRun run(config, semantic_class);
    Spoiled candidate(config);
    int64_t steps = 0;
    candidate.around = [&steps](Spoiled& self, const data::Batch& batch, int64_t step) {
      ++steps;
      return self.plain_step(batch, step);
    };
    EXPECT_TRUE(run(candidate).passed);
    EXPECT_GE(steps, 3);
    EXPECT_LE(2 * steps, most_guard_steps(run.options));
  }
}

TEST(GuardOptionsChecks, SayWhatIsWrong) {
  const TrainConfig config = guarded_config("mlp");
  GuardRun run(config, SemanticClass::kTrajectory);
  EXPECT_THROW(run(config), UserError);
  run.options.semantic_class = SemanticClass::kReassociation;
  run.options.batches = 1;
  EXPECT_THROW(run(config), UserError);
  TrainConfig wild = config;
  wild.optimizer.kind = nn::OptimizerKind::kSgd;
  wild.optimizer.lr = 1e38;
  wild.optimizer.clip = 0;
  GuardRun wild_run(wild);
  EXPECT_THROW(wild_run(wild), UserError);
}

}  // namespace
}  // namespace ridge::test
