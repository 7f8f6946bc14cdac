// Third-party programs that are timed in turn: without torch under the real shim
// (tests/attach/programs/gate_steps.py), and with it.
//
// In tests that kill ridge itself, a process of this test program takes its place: it runs the
// one test ForeignRunnerHolder.DISABLED_Holds.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

#include "ridge/base/clock.h"
#include "ridge/base/stop.h"
#include "ridge/tune/pytorch/runner.h"
#include "tests/attach/program_run.h"
#include "tests/support/peers_python.h"
#include "tests/support/succeeds_once.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

using test::comes;
using test::is_alive;
using test::stat_of;
using test::TempFolder;

/// At once, so that tests are short.
ForeignRunnerOptions soon() {
  return {.warm_steps = 1, .warm_seconds = 0, .start_seconds = 60, .block_seconds = 60};
}

ForeignTarget target_of(const std::string& script) {
  return {.command = attach::CommandTemplate({"/bin/sh", "-c", script}),
          .consent = attach::Consent::kRerun,
          .supervisor = RIDGE_PROGRAM};
}

/// A program of tests/attach/programs in a folder.
ForeignTarget program(const fs::path& folder,
                      const std::string& words,
                      const std::string& python = "python3") {
  return target_of("cd '" + folder.string() + "' && exec '" + python + "' '" +
                   fs::absolute("tests/attach/programs").string() + "/" + words);
}
std::string steps(const std::string& words) { return "gate_steps.py' " + words; }

ForeignRecipe environment(const std::string& name, const std::string& value) {
  ForeignRecipe recipe;
  recipe.set_environment(name, value);
  return recipe;
}
ForeignRecipe slower(const std::string& factor) { return environment("SLOWER", factor); }

/// The failure of a program that is opened and then runs a block.
std::string failure(const ForeignTarget& target, const ForeignRunnerOptions& options = soon()) {
  try {
    ForeignRunner runner(target, {}, options);
    runner.run(100);
  } catch (const VariantFailed& error) {
    return error.what();
  }
  return "it did not fail";
}

class ForeignRunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  }
  void TearDown() override { clear_stop(); }
  TempFolder folder_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// ---- blocks ----

TEST_F(ForeignRunnerTest, IsStoppedButInItsBlocks) {
  ForeignRunner runner(program(folder_.path(), steps("plain 100000")), {}, soon());
  const attach::ProcessFacts facts = runner.facts();
  EXPECT_EQ(facts.step_source, "optimizer");
  EXPECT_GT(facts.steps, 1);
  EXPECT_GT(runner.open_seconds(), 0);
  EXPECT_TRUE(comes([&] { return stat_of(facts.pid).starts_with("T"); }));
  for (int i = 0; i < 3; ++i) {
    const Block block = runner.run(10);
    EXPECT_GE(block.seconds, 10 * 0.001);
    EXPECT_GE(block.stolen_seconds, 0);
    EXPECT_TRUE(comes([&] { return stat_of(facts.pid).starts_with("T"); }));
  }
  EXPECT_EQ(runner.facts().steps, facts.steps + 30);
  EXPECT_EQ(runner.least_steps(), 1);
  EXPECT_EQ(runner.breaks(), 0);
}

TEST_F(ForeignRunnerTest, StartedAgainItIsAnotherProcess) {
  ForeignRunner runner(program(folder_.path(), steps("plain 100000")), {}, soon());
  const pid_t first = static_cast<pid_t>(runner.facts().pid);
  EXPECT_GT(runner.peak_bytes(), int64_t{1} << 20);
  runner.restart();
  EXPECT_NE(static_cast<pid_t>(runner.facts().pid), first);
  EXPECT_EQ(::kill(first, 0), -1) << "it still runs";
  EXPECT_GT(runner.run(20).seconds, 0);
}

TEST_F(ForeignRunnerTest, IsWarmAfterItsStepsAndSeconds) {
  ForeignRunnerOptions options = soon();
  options.warm_steps = 30;
  options.warm_seconds = 0.1;
  ForeignRunner runner(program(folder_.path(), steps("plain 100000")), slower("10"), options);
  EXPECT_GE(runner.facts().steps, 31);
  EXPECT_GE(runner.open_seconds(), 0.3);
}

// Without torch the compiler waits for a model until its knob gives up, at step 30.
TEST_F(ForeignRunnerTest, ACompilerThatIsNotDoneIsAwaited) {
  ForeignRecipe recipe;
  recipe.set("model.compile", "default");
  ForeignRunner runner(program(folder_.path(), steps("plain 100000")), recipe, soon());
  const attach::ProcessFacts facts = runner.facts();
  ASSERT_EQ(facts.knobs.size(), 1u);
  EXPECT_EQ(facts.knobs[0].state, "refused");
  EXPECT_GE(facts.steps, 30);
}

TEST_F(ForeignRunnerTest, BlocksAreLongAgainstWhatLiesReady) {
  ForeignRunner runner(program(folder_.path(), steps("loader 100000")), {}, soon());
  ForeignRunner other(program(folder_.path(), steps("plain 100000")), {}, soon());
  EXPECT_GE(runner.least_steps(), 3 * 4);
  const TrialOptions options = foreign_trial_options(0, 1, other, runner);
  EXPECT_EQ(options.least_steps, runner.least_steps());
  EXPECT_GE(options.block_seconds, 0.1);
}

TEST_F(ForeignRunnerTest, BreaksAreToldOfAndCostWhatTheyCost) {
  ForeignRunner runner(program(folder_.path(), steps("breaks 100000")), {}, soon());
  const Block block = runner.run(40);
  EXPECT_GE(runner.breaks(), 4);
  EXPECT_LE(runner.breaks(), 5);
  // They sleep for 20 ms; a step of theirs is not counted to them.
  EXPECT_GE(runner.break_seconds(), 0.02 + 0.001 - block.seconds / 40);
}

// ---- comparisons ----

// Their steps take what a clock of their own says, from which nobody steals.
TrialOptions short_trial(const ForeignRunner& before, const ForeignRunner& after) {
  TrialOptions options = foreign_trial_options(now_ns() + 3600'000'000'000, 7, before, after);
  options.block_seconds = 0.03;
  options.most_pairs = 25;
  options.stolen_share = std::numeric_limits<double>::infinity();
  return options;
}

TEST_F(ForeignRunnerTest, TheSameProgramIsNotFaster) {
  ForeignRunner before(program(folder_.path(), steps("timed 1000000")), {}, soon());
  ForeignRunner after(
      program(folder_.path(), steps("timed 1000000")), environment("SEED", "1"), soon());
  const TrialResult result = compare(before, after, short_trial(before, after));
  EXPECT_GE(result.pairs.size(), 4u);
  EXPECT_NE(result.verdict, Verdict::kFaster);
  // The two are held at other places of their noise in each run, and an interval of 95 % may miss
  // the truth; 30 steps of a block, each off by a hundredth at most, do not differ by so much.
  if (result.interval) {
    EXPECT_LE(result.interval->low, 0.002);
  }
}

TEST_F(ForeignRunnerTest, OneThatIsFasterIsFound) {
  ForeignRunner before(program(folder_.path(), steps("timed 1000000")), slower("15"), soon());
  ForeignRunner after(program(folder_.path(), steps("timed 1000000")), slower("10"), soon());
  const TrialResult result = compare(before, after, short_trial(before, after));
  EXPECT_EQ(result.verdict, Verdict::kFaster);
  EXPECT_NEAR(result.gain, std::log(1.5), 0.02);
  EXPECT_NEAR(result.before_seconds, 0.015, 0.001);
}

// ---- programs that end ----

TEST_F(ForeignRunnerTest, OneThatEndsIsStartedAgainAndTheBlockWithIt) {
  ForeignRunner runner(program(folder_.path(), steps("plain 40")), {}, soon());
  const pid_t first = runner.facts().pid;
  for (int i = 0; i < 3; ++i) EXPECT_GE(runner.run(25).seconds, 0.025);
  EXPECT_NE(runner.facts().pid, first);
  EXPECT_FALSE(is_alive(first));
}

TEST_F(ForeignRunnerTest, ABlockThatIsLongerThanTheProgramIsPutTogether) {
  ForeignRunner runner(program(folder_.path(), steps("plain 40")), {}, soon());
  EXPECT_EQ(runner.whole_steps(), 0);
  const auto start = std::chrono::steady_clock::now();
  const Block block = runner.run(100);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  EXPECT_GE(block.seconds, 0.1);
  EXPECT_LT(block.seconds, passed.count());  // without what its programs took to start
  EXPECT_EQ(runner.whole_steps(), 40);
}

TEST_F(ForeignRunnerTest, OneThatEndsBeforeItIsWarmIsTimedAllTheSame) {
  ForeignRunnerOptions options = soon();
  options.warm_seconds = 100;
  ForeignRunner runner(program(folder_.path(), steps("plain 40")), {}, options);
  EXPECT_GE(runner.run(20).seconds, 0.02);
}

TEST_F(ForeignRunnerTest, OneOfThreeStepsIsNotTimed) {
  EXPECT_SAYS(failure(program(folder_.path(), steps("plain 3"))),
              "ended by itself after 2 steps: too few");
}

// ---- programs that fail ----

TEST_F(ForeignRunnerTest, OneThatCrashesSaysWhatItSaid) {
  const std::string text = failure(program(folder_.path(), steps("crash 100000")));
  EXPECT_EQ(text.find("it ended with exit code 1; its last lines:\n"), 0u) << text;
  EXPECT_TRUE(text.ends_with("\nValueError: broken on purpose")) << text;
}

TEST_F(ForeignRunnerTest, OneThatIsKilledSaysSo) {
  ForeignRunner runner(program(folder_.path(), steps("plain 100000")), {}, soon());
  ::kill(runner.facts().pid, SIGKILL);
  try {
    runner.run(10);
    ADD_FAILURE() << "it did not fail";
  } catch (const VariantFailed& error) {
    EXPECT_SAYS(std::string(error.what()), "ended by signal 9");
  }
}

TEST_F(ForeignRunnerTest, OneThatNeverStepsSaysWhatWasLookedFor) {
  EXPECT_SAYS(failure(target_of("exit 0")), "it ended without a step: no Python that it ran");
  EXPECT_SAYS(failure(target_of("exec python3 -c 'pass'")),
              "it ended without a step: looked for a process that imports torch: there is none");
  EXPECT_EQ(failure(target_of("echo hello; exit 3")),
            "it ended with exit code 3; its last lines:\nhello");
  ForeignRunnerOptions options = soon();
  options.start_seconds = 0.3;
  EXPECT_SAYS(failure(target_of("exec sleep 1000"), options),
              "it came to no step within 0.3 s: no");
}

TEST_F(ForeignRunnerTest, OneThatHangsIsGivenUp) {
  ForeignRunnerOptions options = soon();
  options.block_seconds = 0.7;
  EXPECT_SAYS(failure(program(folder_.path(), steps("hang 100000")), options),
              "it made no step for 0.7 s");
  // A stall of the machine between its first steps would look like a hang.
  EXPECT_TRUE(test::succeeds_once([&] {
    const std::string text = failure(program(folder_.path(), steps("silent 100000")), options);
    return text.find("steps, but they could not be held") != std::string::npos;
  }));
}

TEST_F(ForeignRunnerTest, OneThatTalksNonsenseIsGivenUp) {
  EXPECT_SAYS(failure(program(folder_.path(), steps("nonsense 100000"))),
              "says what makes no sense");
}

TEST_F(ForeignRunnerTest, WhatAProgramLeavesIsEnded) {
  pid_t left = 0;
  {
    ForeignRunner runner(
        // Held before it has said its number, the process could not say it.
        target_of("cd '" + folder_.path().string() +
                  "'; rm -f left; setsid sh -c 'echo $$ > left; exec sleep 1000' & "
                  "until [ -s left ]; do sleep 0.01; done; python3 '" +
                  fs::absolute("tests/attach/programs/gate_steps.py").string() + "' plain 30"),
        {},
        soon());
    left = test::pids_in(folder_ / "left", 1)[0];
    runner.run(25);  // it ends, and is started again
    EXPECT_FALSE(is_alive(left));
    left = test::pids_in(folder_ / "left", 1)[0];
  }
  EXPECT_FALSE(is_alive(left));
}

// ---- the end of a trial ----

TEST_F(ForeignRunnerTest, AStopIsHeededWhileItStartsAndInABlock) {
  request_stop(SIGINT);
  EXPECT_THROW(ForeignRunner(target_of("exec sleep 1000"), {}, soon()), TrialStopped);
  clear_stop();
  ForeignRunnerOptions options = soon();
  ForeignRunner runner(program(folder_.path(), steps("hang 100000")), {}, options);
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    request_stop(SIGINT);
  });
  EXPECT_THROW(runner.run(1000), TrialStopped);
  later.join();
}

TEST_F(ForeignRunnerTest, TheDeadlineIsHeeded) {
  ForeignRunnerOptions options = soon();
  options.deadline_ns = now_ns() + 200'000'000;
  EXPECT_THROW(ForeignRunner(target_of("exec sleep 1000"), {}, options), TrialStopped);
}

TEST(ForeignRunnerHolder, DISABLED_Holds) {
  const fs::path path = std::getenv("RIDGE_TEST_PID");
  ForeignRunner runner(program(path.parent_path(), steps("orphan 100000")), {}, soon());
  std::ofstream(path) << runner.facts().pid << std::endl;
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

/// Folders that a process of ridge has made.
bool has_folders(pid_t pid) {
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path()))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("ridge-") && name.find(fmt::format("-{}-", pid)) != std::string::npos)
      return true;
  return false;
}

TEST_F(ForeignRunnerTest, AKilledRidgeLeavesNoProcessAndNoFolder) {
  const std::string path = (folder_ / "pid").string();
  const pid_t holder = ::fork();
  if (holder == 0) {
    ::setenv("RIDGE_TEST_PID", path.c_str(), 1);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::execl("/proc/self/exe",
            "test_tune",
            "--gtest_filter=ForeignRunnerHolder.DISABLED_Holds",
            "--gtest_also_run_disabled_tests",
            nullptr);
    ::_exit(99);
  }
  const pid_t held = test::pids_in(path, 1)[0];
  const test::Ending ending({held, test::parent_of(held)});
  EXPECT_TRUE(comes([&] { return stat_of(held).starts_with("T"); }));
  EXPECT_TRUE(has_folders(holder));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
  EXPECT_TRUE(comes([&] { return !has_folders(holder); }));
}

// ---- PyTorch ----

class ForeignTorch : public ForeignRunnerTest {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }
  ForeignTarget train(const std::string& words) {
    return program(folder_.path(), "gate_train.py' " + words, python_);
  }
  std::string python_ = test::peers_python();
};

TEST_F(ForeignTorch, AnEpochWithoutWorkersIsCutOnce) {
  ForeignRunner runner(train("plain 100000"), {}, soon());
  const int64_t breaks = runner.breaks();
  runner.run(23 * 4);
  EXPECT_EQ(runner.breaks() - breaks, 4);
  EXPECT_EQ(runner.least_steps(), 1);
  EXPECT_EQ(runner.facts().step_source, "optimizer");
}

// Four batches lie ready at an epoch's end, and the first of the next is what fills the queue.
TEST_F(ForeignTorch, LoadersWithWorkersAreFullWhereABlockEnds) {
  for (const char* mode : {"workers", "persistent", "iterable"}) {
    ForeignRunner runner(train(mode + std::string(" 100000")), {}, soon());
    EXPECT_EQ(runner.least_steps(), 16) << mode;
    const int64_t breaks = runner.breaks(), before = runner.facts().steps;
    runner.run(19 * 4);
    EXPECT_EQ(runner.breaks() - breaks, 4) << mode;
    EXPECT_EQ(runner.facts().steps - before, 24 * 4) << mode;
  }
}

TEST_F(ForeignTorch, AnEvaluationIsABreakAndAFrozenLayerIsNone) {
  ForeignRunner runner(train("evaluates 100000"), {}, soon());
  const int64_t breaks = runner.breaks();
  runner.run(19 * 3);
  // Among 24 steps the first begins anew, and four follow an evaluation, the first of them at once.
  EXPECT_EQ(runner.breaks() - breaks, 4 * 3);
}

TEST_F(ForeignTorch, CallsOfAModuleAreSteps) {
  ForeignRunner runner(
      program(folder_.path(), "shim_infer.py' plain 1000000", python_), {}, soon());
  EXPECT_EQ(runner.facts().step_source, "module");
  EXPECT_GT(runner.run(20).seconds, 0);
}

}  // namespace
}  // namespace ridge
