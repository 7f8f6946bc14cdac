// The guard against the knobs that break the programs of tests/attach/programs/break_*.py, with no
// timing before it; and that it lets pass what does no harm to the same programs.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "ridge/attach/process/program.h"
#include "ridge/base/clock.h"
#include "ridge/tune/pytorch/guard/guard.h"
#include "ridge/tune/pytorch/recipe.h"
#include "tests/cli/ridge_process.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using attach::RunRecord;

constexpr int64_t kSteps = 30;

class ForeignBreaks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }

  /// runtime_error with what the program wrote where it fails.
  RunRecord run(const std::string& program,
                const ForeignRecipe& recipe,
                int64_t reseed = 0,
                double nudge = 0) const {
    const test::TempFolder place;
    attach::ShimOptions options;
    options.profiled_steps = 0;
    options.recipe = recipe.shim_json();
    options.record_steps = kSteps;
    options.reseed = reseed;
    options.nudge = nudge;
    const attach::ShimFolder shim(options);
    attach::ProgramRequest request;
    request.command = {python_,
                       std::filesystem::absolute("tests/attach/programs/" + program).string(),
                       "--steps",
                       std::to_string(kSteps + 1)};
    request.environment = shim.environment();
    request.environment.emplace_back("OMP_NUM_THREADS", "1");
    request.working_folder = place.path().string();
    request.output = (place / "output").string();
    request.supervisor = RIDGE_PROGRAM;
    attach::Program running(request);
    for (const int64_t until = now_ns() + 120'000'000'000; now_ns() < until;) {
      const auto end = running.wait(20);
      const auto record = attach::read_record(shim);
      if (record && record->is_whole) {
        expect_applied(recipe, shim);
        return *record;
      }
      if (end) throw std::runtime_error(test::text_of(request.output));
    }
    throw std::runtime_error("no record within the time");
  }

  // A knob that does nothing would pass every guard.
  static void expect_applied(const ForeignRecipe& recipe, const attach::ShimFolder& shim) {
    std::set<std::string> applied;
    for (const attach::ProcessFacts& facts : shim.facts())
      for (const attach::KnobFacts& knob : facts.knobs)
        if (knob.state == "applied") applied.insert(knob.key);
    for (const auto& [key, value] : recipe.changes()) EXPECT_TRUE(applied.contains(key)) << key;
  }

  static ForeignRecipe recipe(const std::string& key, const std::string& value) {
    ForeignRecipe made;
    made.set(key, value);
    return made;
  }

  ForeignBaseline baseline_of(const std::string& program, int64_t seeds) const {
    ForeignBaseline baseline;
    for (int64_t seed = 0; seed < seeds; ++seed) baseline.seeds.push_back(run(program, {}, seed));
    baseline.again = run(program, {});
    EXPECT_TRUE(baseline.is_repeatable()) << program;
    return baseline;
  }

  const std::string python_ = test::peers_python();
};

TEST_F(ForeignBreaks, SamplesThatWorkersMixUpFail) {
  const ForeignBaseline baseline = baseline_of("break_shared_offset.py", 1);
  const auto answer = [&](const std::string& key, const std::string& value) {
    return judge_runs(baseline,
                      {run("break_shared_offset.py", recipe(key, value))},
                      SemanticClass::kBitIdentical);
  };
  const GuardOutcome workers = answer("loader.workers", "2");
  EXPECT_TRUE(workers.can_tell) << workers.text;
  EXPECT_FALSE(workers.passed) << workers.text;
  const GuardOutcome harmless = answer("cpus", "0");
  EXPECT_TRUE(harmless.can_tell && harmless.passed) << harmless.text;
}

TEST_F(ForeignBreaks, ALossLostUnderBf16Fails) {
  ForeignBaseline baseline = baseline_of("break_bf16.py", kForeignSeeds);
  baseline.fine_controls = {run("break_bf16.py", {}, 0, kFineNudge)};
  baseline.coarse_controls = {run("break_bf16.py", {}, 0, kCoarseNudge)};
  std::vector<RunRecord> runs;
  for (int64_t seed = 0; seed < kForeignSeeds; ++seed)
    runs.push_back(run("break_bf16.py", recipe("model.autocast", "bf16"), seed));
  const GuardOutcome bf16 = judge_runs(baseline, runs, SemanticClass::kPrecision);
  EXPECT_TRUE(bf16.can_tell) << bf16.text;
  EXPECT_FALSE(bf16.passed) << bf16.text;
  const GuardOutcome harmless =
      judge_runs(baseline,
                 {run("break_bf16.py", recipe("optimizer.fused", "true"))},
                 SemanticClass::kReassociation);
  EXPECT_TRUE(harmless.can_tell && harmless.passed) << harmless.text;
}

TEST_F(ForeignBreaks, AViewOfChannelsLastMemoryFailsInItsOwnWords) {
  try {
    run("break_view.py", recipe("model.channels_last", "true"));
    FAIL() << "the view did not fail";
  } catch (const std::runtime_error& failure) {
    EXPECT_NE(std::string(failure.what()).find("view size is not compatible"), std::string::npos)
        << failure.what();
  }
  const GuardOutcome harmless = judge_runs(baseline_of("break_view.py", 1),
                                           {run("break_view.py", recipe("cpus", "0"))},
                                           SemanticClass::kBitIdentical);
  EXPECT_TRUE(harmless.can_tell && harmless.passed) << harmless.text;
}

}  // namespace
}  // namespace ridge
