// Runs in pairs that make other updates: what clearly trains worse is rejected, what trains as well
// passes, both sides see the same samples, and what cannot be told is not let through.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "ridge/proof/paired_runs.h"
#include "ridge/tune/engine/guard/trajectory.h"
#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/engine/technique_batch.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

// ---- Statistics ----

// Losses of a reference whose order of samples moves them by 1, and of a candidate that is worse by
// `loss`; the order moves both by the same, and each by something of its own.
bool passes(double loss, uint64_t seed, double* power) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> reference, differences;
  for (int pair = 0; pair < 12; ++pair) {
    const double common = normal(random) * std::sqrt(0.5);
    reference.push_back(5 + common + normal(random) * std::sqrt(0.5));
    differences.push_back(5 + common + normal(random) * std::sqrt(0.5) + loss - reference.back());
  }
  GuardRuns runs{.pairs = 12};
  runs.margin = fixed_margin(reference);
  judge_pairs(differences, runs);
  if (power != nullptr) *power += runs.power;
  return runs.passed;
}

double passing_share(double loss, double* power = nullptr) {
  constexpr int kTrials = 2000;
  int passed = 0;
  for (int trial = 0; trial < kTrials; ++trial) passed += passes(loss, trial, power) ? 1 : 0;
  if (power != nullptr) *power /= kTrials;
  return static_cast<double>(passed) / kTrials;
}

// The margin is itself an estimate from 12 runs: at its true value a little more than 5 % pass.
TEST(TrajectoryStatistics, LossesBeyondTheMarginHardlyPass) {
  EXPECT_LE(passing_share(1.0), 0.12);
  EXPECT_LE(passing_share(1.5), 0.01);
  EXPECT_LE(passing_share(2.0), 0.001);
}

TEST(TrajectoryStatistics, PowerIsWhatItSays) {
  double power = 0;
  const double share = passing_share(0, &power);
  EXPECT_GT(share, 0.8);
  EXPECT_NEAR(share, power, 0.08);
}

TEST(TrajectoryStatistics, IntervalsAreThoseOfStudent) {
  GuardRuns runs{.pairs = 4, .margin = 3};
  judge_pairs({1, 2, 3, 4}, runs);
  // Mean 2.5, deviation sqrt(5/3), t(0.95, 3) = 2.35336 (published).
  const double error = std::sqrt(5.0 / 3) / 2;
  EXPECT_NEAR(runs.upper, 2.5 + 2.35336 * error, 1e-4);
  EXPECT_NEAR(runs.lower, 2.5 - 2.35336 * error, 1e-4);
  EXPECT_FALSE(runs.passed);
}

// ---- Which samples ----

/// Notes what it is given; its loss is what the test says.
class Witness final : public Variant {
 public:
  const std::vector<StateEntry>& entries() const override { return entries_; }
  Tensor read(const std::string&) const override { return Tensor({DType::kF32, {}}); }
  void write(const std::string&, const Tensor&) override {}
  double step(const data::Batch& batch, int64_t step) override {
    if (step == 0) runs.emplace_back();
    const auto* labels = static_cast<const int64_t*>(batch.fields[1]);
    runs.back().insert(runs.back().end(), labels, labels + batch.count);
    return loss(runs.size());
  }
  std::string hash() const override { return ""; }

  std::vector<std::vector<int64_t>> runs;  ///< Labels in their order.
  std::function<double(size_t)> loss = [](size_t run) { return static_cast<double>(run); };

 private:
  std::vector<StateEntry> entries_;
};

class Sides {
 public:
  explicit Sides(int64_t samples, bool drop_last = false)
      : dataset_(data::open_dataset(
            {.kind = data::DataKind::kRandom, .samples = samples, .shape = {2}, .classes = 1000},
            data::Split::kTrain)),
        plan_{.batch = 8, .shuffle = true, .seed = 3, .drop_last = drop_last, .repeat = true} {}

  GuardReport run(int64_t samples, int64_t growth = 4) {
    data::BatchPlan grown = plan_;
    grown.batch *= growth;
    return guard_trajectory({.variant = reference, .plan = plan_, .held_out = held_out},
                            {.variant = candidate, .plan = grown, .held_out = held_out},
                            *dataset_,
                            {.pairs = 3,
                             .samples = aligned_samples(samples, dataset_->size(), grown.batch),
                             .run_samples = 10000});
  }

  Witness reference, candidate;
  std::function<double()> held_out = nullptr;

 private:
  std::unique_ptr<data::Dataset> dataset_;
  data::BatchPlan plan_;
};

TEST(Trajectory, BothSidesSeeTheSameSamplesInTheSameOrder) {
  for (const int64_t samples : {70, 130, 320, 340}) {
    Sides sides(150);
    sides.run(samples);
    ASSERT_EQ(sides.reference.runs.size(), 3u);
    EXPECT_EQ(sides.reference.runs, sides.candidate.runs) << samples;
    EXPECT_LE(sides.reference.runs[0].size(), static_cast<size_t>(samples));
    EXPECT_NE(sides.reference.runs[0], sides.reference.runs[1]);  // another order
  }
}

TEST(Trajectory, SamplesAreWholeBatchesOrWholeEpochs) {
  EXPECT_EQ(aligned_samples(100, 1000, 32), 96);
  EXPECT_EQ(aligned_samples(10, 1000, 32), 32);
  EXPECT_EQ(aligned_samples(1000, 1000, 32), 1000);
  EXPECT_EQ(aligned_samples(2999, 1000, 32), 2992);
}

// Evaluations come after as many samples on both sides, none before the last third.
TEST(Trajectory, HeldOutDataAreLookedAtWithTheSameSamples) {
  Sides sides(1000);
  std::vector<size_t> reference, candidate;
  sides.held_out = [&] {
    const bool is_candidate = !sides.candidate.runs.empty();
    Witness& side = is_candidate ? sides.candidate : sides.reference;
    (is_candidate ? candidate : reference).push_back(side.runs.back().size());
    return static_cast<double>(side.runs.size());
  };
  const GuardReport report = sides.run(900);
  EXPECT_EQ(reference, candidate);
  ASSERT_EQ(reference.size(), 12u);  // four a run
  EXPECT_EQ(reference[3], 896u);
  EXPECT_GT(reference[0], 600u);
  EXPECT_TRUE(report.passed);
  EXPECT_NE(report.text.find("held-out loss"), std::string::npos) << report.text;
}

TEST(Trajectory, TellsHowFarItWentAndWhatItCannotTell) {
  Sides same(1000);
  const GuardReport passed = same.run(500);
  EXPECT_TRUE(passed.passed);
  EXPECT_TRUE(passed.text.starts_with("no evidence of a loss above 1 after 480 of 10000 samples"))
      << passed.text;
  EXPECT_TRUE(passed.text.ends_with("nothing is shown of what comes after")) << passed.text;
  Sides worse(1000);
  worse.candidate.loss = [](size_t run) { return static_cast<double>(run) + 5; };
  const GuardReport failed = worse.run(500);
  EXPECT_FALSE(failed.passed);
  EXPECT_TRUE(failed.text.starts_with("after 480 of 10000 samples the loss is worse by 5 to 5"))
      << failed.text;
  Sides noisy(1000);
  noisy.candidate.loss = [](size_t run) { return run == 2 ? 4.0 : 1.0; };
  const GuardReport open = noisy.run(500);
  EXPECT_FALSE(open.passed);
  EXPECT_TRUE(open.text.starts_with("cannot tell: after 480 of 10000 samples")) << open.text;
}

TEST(Trajectory, WhatIsNotFiniteFails) {
  Sides sides(1000);
  sides.candidate.loss = [](size_t run) { return run == 2 ? NAN : 1.0; };
  const GuardReport report = sides.run(500);
  EXPECT_FALSE(report.passed);
  EXPECT_EQ(report.text, "the loss is not finite within 480 of 10000 samples");
  EXPECT_EQ(sides.candidate.runs.size(), 2u);
  Sides wild(1000);
  wild.reference.loss = [](size_t) { return INFINITY; };
  EXPECT_THROW(wild.run(500), UserError);
}

// ---- Whole configurations ----

/// A table whose label is mostly a linear function of its columns, and by chance in 30 of 100 rows:
/// a small network soon reaches a loss that no update can lower.
class NoisyTable : public testing::Test {
 protected:
  NoisyTable() {
    std::ofstream file(folder_ / "table.csv");
    file << "a,b,c,d,label\n";
    std::mt19937_64 random(11);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    for (int row = 0; row < 6000; ++row) {
      float x[4];
      for (float& value : x) value = normal(random);
      const bool rule = x[0] + 2 * x[1] - x[2] > 0;
      const bool label = uniform(random) < 0.3F ? uniform(random) < 0.5F : rule;
      file << fmt::format(
          "{:.3f},{:.3f},{:.3f},{:.3f},{}\n", x[0], x[1], x[2], x[3], label ? 1 : 0);
    }
  }

  LoadedConfig config(const std::string& optimizer, const Recipe& recipe = {}) {
    return resolve(optimizer, recipe).loaded;
  }
  ResolvedConfig resolve(const std::string& optimizer, const Recipe& recipe) {
    const std::string text = fmt::format(
        "[model]\nkind = 'mlp'\nhidden = [8]\n[data]\nkind = 'table'\npath = '{}'\n"
        "eval_fraction = 0.2\n[loader]\nworkers = 1\n[optimizer]\n{}\n[train]\nbatch = 8\n"
        "epochs = 2\n",
        (folder_ / "table.csv").string(),
        optimizer);
    return resolve_config(text, "test", recipe);
  }
  // Of changes to the optimizer's configuration.
  GuardAnswer guard(const std::string& optimizer,
                    const std::vector<ConfigFlag>& changes,
                    int64_t most_steps = 20000) {
    Recipe recipe;
    for (const ConfigFlag& change : changes) recipe.set(change.key, change.value);
    return guard_configs({.reference = resolve(optimizer, {}).toml,
                          .candidate = resolve(optimizer, recipe).toml,
                          .semantic_class = SemanticClass::kTrajectory,
                          .most_steps = most_steps});
  }

  test::TempFolder folder_;
};

constexpr const char* kAdam = "kind = 'adamw'\nlr = 0.01";
constexpr const char* kSgd = "kind = 'sgd'\nlr = 0.02";

TEST_F(NoisyTable, TwiceTheBatchWithItsRulePasses) {
  for (const char* optimizer : {kAdam, kSgd}) {
    const TrainConfig before = config(optimizer).config;
    const GuardAnswer answer = guard(optimizer, grown_batch(before, 2));
    EXPECT_TRUE(answer.passed) << optimizer << ": " << answer.text;
    EXPECT_GT(answer.margin, 0);
    EXPECT_GT(answer.power, 0);
    EXPECT_NE(answer.text.find("no evidence of a loss above"), std::string::npos) << answer.text;
  }
}

// Four times the batch at a learning rate that stays behind: a quarter of the progress.
TEST_F(NoisyTable, FourTimesTheBatchWithoutTheRuleIsRejected) {
  for (const char* optimizer : {"kind = 'adamw'\nlr = 0.0003", "kind = 'sgd'\nlr = 0.0005"}) {
    const GuardAnswer answer = guard(optimizer, {{"train.batch", "32", ""}});
    EXPECT_FALSE(answer.passed) << optimizer << ": " << answer.text;
    EXPECT_NE(answer.text.find("the loss is worse by"), std::string::npos) << answer.text;
  }
}

TEST_F(NoisyTable, AnAbsurdLearningRateIsRejected) {
  for (const char* optimizer : {kAdam, kSgd})
    for (const char* rate : {"3", "100"}) {
      const GuardAnswer answer =
          guard(optimizer, {{"train.batch", "16", ""}, {"optimizer.lr", rate, ""}});
      EXPECT_FALSE(answer.passed) << optimizer << ", " << rate << ": " << answer.text;
      EXPECT_TRUE(answer.can_tell) << answer.text;
    }
}

TEST_F(NoisyTable, TooFewStepsCannotTellAndRunNothing) {
  const GuardAnswer answer = guard(kAdam, grown_batch(config(kAdam).config, 2), 100);
  EXPECT_FALSE(answer.passed);
  EXPECT_FALSE(answer.can_tell);
  EXPECT_TRUE(answer.text.starts_with("cannot tell: runs of 640 samples would be needed"))
      << answer.text;
}

}  // namespace
}  // namespace ridge
