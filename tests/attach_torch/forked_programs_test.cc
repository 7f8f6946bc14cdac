// Real programs that are forked from a process that has imported their packages: the numbers of
// their steps are those of runs that were started anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "ridge/base/clock.h"
#include "ridge/tune/loop.h"
#include "ridge/tune/pytorch/guard/guard.h"
#include "ridge/tune/pytorch/guard_runs.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

using attach::RunRecord;
using Runs = ForeignReference::Runs;

class Silent final : public OptimizeObserver {
  void on_message(const std::string& /*text*/) override {}
  void on_trial(const TrialRecord& /*record*/) override {}
};

class ForkedProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  }

  /// The command's words behind the path of the example.
  void takes(const std::string& example, std::vector<std::string> words = {}) {
    words.insert(words.begin(),
                 {python_, fs::absolute("examples/pytorch/" + example + ".py").string()});
    words.insert(words.end(), {"--out", "{out}/result"});
    const ForeignTarget target{.command = attach::CommandTemplate(words),
                               .supervisor = RIDGE_PROGRAM};
    const LoopBudget budget(600);
    Silent observer;
    OptimizeSummary summary;
    double noise = 0;
    const ProgramCosts costs = probe_program(target, {budget, observer, summary, noise});
    EXPECT_EQ(costs.imports.refusal, "") << example;
    std::vector<std::string> notes;
    const GuardRunLimits limits{.until_ns = now_ns() + 900'000'000'000, .usual_seconds = 120};
    ForeignRecipe recipe;
    recipe.set("threads", "1");
    const Runs runs = {{}, {}, {{}, 1, 0}, {{}, 0, kFineNudge}, {recipe, 0, 0}};
    GuardRuns some(target, 2), anew(target, 2);
    some.begin(costs.imports, costs.facts, 16, notes);
    const int64_t begun = now_ns();
    const std::vector<RunRecord> found = some.record(runs, limits);
    const int64_t between = now_ns();
    EXPECT_EQ(some.forked(), 4) << example << ": " << fmt::format("{}", fmt::join(notes, "; "));
    anew.begin({.text = {}, .refusal = "to compare with"}, costs.facts, 16, notes);
    const std::vector<RunRecord> wanted = anew.record(runs, limits);
    if (std::getenv("RIDGE_TEST_TALK"))
      fprintf(stderr,
              "%s: five runs take %.1f s where four are forked, else %.1f s\n",
              example.c_str(),
              static_cast<double>(between - begun) * 1e-9,
              static_cast<double>(now_ns() - between) * 1e-9);
    for (size_t i = 0; i < runs.size(); ++i) {
      EXPECT_EQ(found[i].steps, 16) << example << ", run " << i;
      EXPECT_EQ(found[i].losses, wanted[i].losses) << example << ", run " << i;
      EXPECT_EQ(found[i].parameters_hash, wanted[i].parameters_hash) << example << ", run " << i;
      EXPECT_EQ(found[i].batch_hashes, wanted[i].batch_hashes) << example << ", run " << i;
      EXPECT_EQ(found[i].trouble, wanted[i].trouble) << example << ", run " << i;
    }
  }

  std::string python_ = test::peers_python();
};

TEST_F(ForkedProgram, ARecommenderHasItsBits) { takes("recommender", {"--epochs", "100"}); }

TEST_F(ForkedProgram, AMultilayerPerceptronHasItsBits) {
  takes("tabular_mlp", {"--epochs", "100"});
}

TEST_F(ForkedProgram, ALanguageModelHasItsBits) { takes("char_gpt", {"--steps", "1000000"}); }

TEST_F(ForkedProgram, ATrainingOfLightningHasItsBits) { takes("train_lightning"); }

}  // namespace
}  // namespace ridge
