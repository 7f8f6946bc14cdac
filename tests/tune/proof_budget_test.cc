// How much of a budget belongs to the proof, with invented times; and that a program whose runs are
// too short is refused behind its first run.
#include "ridge/proof/proof_budget.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "ridge/base/error.h"
#include "ridge/tune/pytorch/program_target.h"
#include "ridge/tune/pytorch/runner.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nhas no: " << part;
}

/// The number behind a word of the text; 0 where there is none.
double number_behind(const std::string& text, const std::string& word) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(word + " ([0-9]+)")) ? std::stod(match[1]) : 0;
}

// ---- what timing takes ----

TEST(ProofBudget, CountsStartsPairsAndBlocks) {
  const TimingCosts costs{.start_seconds = 5, .block_seconds = 1.6};
  EXPECT_DOUBLE_EQ(timing_seconds(costs, 12, 2), 2 * 5 + 4 * 1.6 * 13);
  EXPECT_DOUBLE_EQ(timing_seconds(costs, 12, 1), 5 + 4 * 1.6 * 13);
  EXPECT_GT(proof_seconds(costs, 12), timing_seconds(costs, 12, 2));
  EXPECT_GT(proof_seconds(costs, 40), proof_seconds(costs, 12));
}

TEST(ProofBudget, CountsTheStartsOfRunsThatEnd) {
  // Each variant is timed for 2 * 1.6 * 13 = 41.6 s: eleven runs of 4 s, ten of them started again.
  const TimingCosts costs{.start_seconds = 5, .block_seconds = 1.6, .run_seconds = 4};
  EXPECT_DOUBLE_EQ(timing_seconds(costs, 12, 2), (2 + 20) * 5 + 4 * 1.6 * 13);
}

TEST(ProofBudget, BlocksTakeTheirLeastTime) {
  const TimingCosts costs{.start_seconds = 1, .block_seconds = 0.02};
  EXPECT_DOUBLE_EQ(proof_seconds(costs, 12, 8), proof_seconds(costs, 100));
  EXPECT_DOUBLE_EQ(proof_seconds(costs, 200, 8), proof_seconds(costs, 200));
}

// A budget of 150 s left two pairs to a program that starts in 5 s and whose pairs take 5 s: a
// quarter of the budget, or four starts, were kept for the proof.
TEST(ProofBudget, AQuarterOfTheBudgetIsNotAlwaysEnough) {
  const TimingCosts costs{.start_seconds = 5, .block_seconds = 1.25};
  EXPECT_GE(proof_seconds(costs, kProofPairs), 2 * 5 + 12 * 5);
  EXPECT_GT(proof_seconds(costs, kProofPairs), std::max(0.25 * 150, 4 * 5.0));
}

TEST(ProofBudget, NoVerdictStandsWithFewerPairs) {
  Judge judge({.worth = std::log(1.02), .hope = std::log(1.05), .accept_error = 0.025});
  int64_t pairs = 0;
  for (; pairs < 100 && borne_out(judge) == Verdict::kOpen; ++pairs) judge.add(0.3);
  EXPECT_EQ(pairs, kVerdictPairs);
}

TEST(ProofBudget, AFaintGainTakesMorePairsButNoMoreThanTwiceThoseOfItsTrial) {
  const JudgeOptions judge{.worth = std::log(1.02), .hope = std::log(1.05)};
  EXPECT_EQ(proof_pairs(judge, std::log(2.0), 0.02, 12), kProofPairs);
  const int64_t many = proof_pairs(judge, std::log(1.08), 0.06, 100);
  EXPECT_GT(many, 20);
  EXPECT_LT(many, 200);
  EXPECT_EQ(proof_pairs(judge, std::log(1.08), 0.06, 9), 18);
  EXPECT_EQ(proof_pairs(judge, 0, 0.06, 0), kProofPairs);
}

TEST(ProofBudget, ProgramsStartAgainWhereThePairsThatAreMissingKeepTheirTime) {
  // Six of twelve pairs took 30 s, and both starts 10 s.
  ProofProgress progress{.seconds_left = 60,
                         .pairs_seconds = 30,
                         .restart_seconds = 10,
                         .pairs = 6,
                         .least_pairs = 12};
  EXPECT_TRUE(may_restart(progress));
  // Three times the starts are left, which once was enough: the pairs would not be made.
  progress.seconds_left = 31;
  EXPECT_FALSE(may_restart(progress));
  progress.seconds_left = 60;
  progress.least_pairs = 24;
  EXPECT_FALSE(may_restart(progress));
}

TEST(ProofBudget, TheNoiseOfPairsIsThatOfThoseThatWereJudged) {
  TrialResult trial;
  const auto add = [&](double before, bool dropped) {
    Pair pair;
    pair.dropped = dropped;
    pair.before[0].seconds = pair.before[1].seconds = before;
    pair.after[0].seconds = pair.after[1].seconds = 1;
    trial.pairs.push_back(pair);
  };
  add(std::exp(0.1), false);
  add(std::exp(0.3), false);
  EXPECT_FALSE(pair_noise(trial));
  add(std::exp(0.2), false);
  add(std::exp(9.0), true);
  ASSERT_TRUE(pair_noise(trial));
  EXPECT_NEAR(*pair_noise(trial), 1.4826 * 0.1, 1e-9);
}

// ---- what is said ----

TEST(ProofBudget, AnOpenProofSaysWhichBudgetItWouldHaveTaken) {
  const JudgeOptions judge{.worth = std::log(1.02), .hope = std::log(1.05)};
  const OpenTrial two{.pairs = 2, .gain = std::log(1.32), .noise = 0.03, .pair_seconds = 5.2};
  const std::string text = verdict_budget_text(two, judge, 150);
  expect_in(text, "at 1.32 times a verdict takes about ");
  expect_in(text, " pairs of 5.2 s");
  const double budget = number_behind(text, "--budget");
  EXPECT_GE(budget, 150 + 8 * 5.2);
  EXPECT_LE(budget, 150 + 40 * 5.2);
  OpenTrial later = two;
  later.more_seconds = 100;
  EXPECT_GE(number_behind(verdict_budget_text(later, judge, 150), "--budget"), budget + 90);
}

TEST(ProofBudget, MoreTimeIsNoAdviceWhereNothingIsGained) {
  const OpenTrial none{.pairs = 40, .gain = 0.001, .noise = 0.05, .pair_seconds = 1};
  const std::string text = verdict_budget_text(none, {}, 150);
  expect_in(text, "even 200 pairs would not do");
  EXPECT_EQ(text.find("--budget"), std::string::npos) << text;
}

TEST(ProofBudget, ATrialThatIsNotBegunSaysForWhat) {
  EXPECT_EQ(no_time_text(14.2, 52.4, 60),
            "the budget has no time left for it: a trial takes about 14 s, and of the 60 s that "
            "are left 52 s are reserved "
            "for the proof");
}

// ---- before anything is tried ----

// A run of two seconds: 1.6 s until the first step, and 40 steps of 10 ms.
ProgramTimes short_run() {
  ProgramTimes times{.step_seconds = 0.01,
                     .guard_seconds = 4,
                     .first_step_seconds = 1.6,
                     .whole_seconds = 2,
                     .whole_steps = 40};
  times.costs = {.start_seconds = 1.7,
                 .block_seconds = 0.2,
                 .run_seconds = timed_run_seconds(times.whole_steps, times.step_seconds)};
  return times;
}

TEST(ProofBudget, RunsThatAreTooShortAreSaidWithTheirFigures) {
  const auto trouble = budget_trouble(short_run(), 60, 57);
  ASSERT_TRUE(trouble);
  EXPECT_TRUE(trouble->is_hopeless);
  for (const char* part : {"too short for a budget of 60 s",
                           "a run takes 2.0 s, 1.6 s of it until the first step",
                           "makes 40 steps of 10 ms",
                           "and 28 fit into the 57 s that are left"})
    expect_in(trouble->text, part);
  EXPECT_GT(number_behind(trouble->text, "take about"), 28);
  expect_in(trouble->fix, "times as many epochs");
  expect_in(trouble->fix, "{steps}");
  EXPECT_EQ(trouble->fix.find("and give --budget"), std::string::npos) << trouble->fix;
}

TEST(ProofBudget, WhatIsAdvisedForShortRunsHelps) {
  const auto trouble = budget_trouble(short_run(), 60, 57);
  ASSERT_TRUE(trouble);
  ProgramTimes longer = short_run();
  longer.whole_steps = static_cast<int64_t>(number_behind(trouble->fix, "make"));
  longer.costs.run_seconds = timed_run_seconds(longer.whole_steps, longer.step_seconds);
  EXPECT_FALSE(budget_trouble(longer, 60, 57));
  const double budget = number_behind(trouble->fix, "--budget");
  const auto still = budget_trouble(short_run(), budget, budget - 3);
  ASSERT_TRUE(still) << "most of it still goes into starts";
  EXPECT_FALSE(still->is_hopeless) << still->text;
  expect_in(still->text, "most of the budget goes into starting it again");
}

TEST(ProofBudget, RunsThatAreLongEnoughAreNotSpokenOf) {
  ProgramTimes times = short_run();
  times.whole_steps = 0;
  times.whole_seconds = times.costs.run_seconds = 0;
  EXPECT_FALSE(budget_trouble(times, 60, 57));
}

TEST(ProofBudget, ABudgetThatIsTooSmallForSlowStartsSaysWhichOneWouldDo) {
  ProgramTimes times{.step_seconds = 0.1, .before_seconds = 12, .guard_seconds = 25};
  times.costs = {.start_seconds = 12, .block_seconds = 1.6};
  const auto trouble = budget_trouble(times, 60, 45);
  ASSERT_TRUE(trouble);
  EXPECT_TRUE(trouble->is_hopeless);
  expect_in(trouble->text, "12.0 s from its start until it can be timed and 1.6 s for a block");
  EXPECT_EQ(trouble->text.find("too short"), std::string::npos) << trouble->text;
  const double budget = number_behind(trouble->fix, "--budget");
  EXPECT_GT(budget, 60);
  EXPECT_FALSE(budget_trouble(times, budget, budget - 15));
}

TEST(ProofBudget, WhatARunCanBeTimedForIsBehindItsWarmUp) {
  EXPECT_DOUBLE_EQ(timed_run_seconds(1000, 0.01), 9);
  EXPECT_DOUBLE_EQ(timed_run_seconds(40, 0.01), 0.3);
  EXPECT_DOUBLE_EQ(timed_run_seconds(20, 1), 15);  // five steps are its warm-up
  EXPECT_DOUBLE_EQ(timed_run_seconds(1, 0.5), 0.5);
}

// ---- a program ----

class Messages final : public OptimizeObserver {
 public:
  void on_message(const std::string& text) override { all += text + "\n"; }
  void on_trial(const TrialRecord& record) override { all += record.reason + "\n"; }
  std::string all;
};

ForeignTarget steps_of(const std::filesystem::path& folder, int64_t steps) {
  return {.command = attach::CommandTemplate(
              {"/bin/sh",
               "-c",
               "cd '" + folder.string() + "' && exec python3 '" +
                   std::filesystem::absolute("tests/attach/programs/gate_steps.py").string() +
                   "' plain " + std::to_string(steps)}),
          .consent = attach::Consent::kRerun,
          .supervisor = RIDGE_PROGRAM};
}

// 40 steps of a millisecond: whatever a start takes, no proof fits into 20 s.
TEST(ShortRuns, AreRefusedBehindTheFirstOne) {
  if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  const test::TempFolder folder;
  Messages messages;
  ForeignOptimizeRequest request{.target = steps_of(folder.path(), 40), .planned_seconds = {}};
  request.loop.budget_seconds = 20;
  try {
    run_loop(*program_target(request), request.loop, messages);
    FAIL() << "it went on: " << messages.all;
  } catch (const UserError& error) {
    expect_in(error.message(), "cannot be tuned: its runs are too short for a budget of 20 s");
    expect_in(error.message(), "makes 40 steps");
    expect_in(error.fix(), "{steps}");
  }
  EXPECT_EQ(messages.all.find("it is started anew for each trial"), std::string::npos)
      << "it was timed before: " << messages.all;
}

}  // namespace
}  // namespace ridge
