// What is said where nothing was gained: what was tried, what the noise may hide, what is next.
#include "ridge/proof/report/no_gain.h"

#include <gtest/gtest.h>

#include "tests/tune/sample_reports.h"

namespace ridge {
namespace {

using Names = std::vector<std::string>;

/// All texts of the rows of a name.
Names texts(const std::vector<ReportRow>& rows, const std::string& name) {
  Names found;
  for (const auto& [of, text] : rows)
    if (of == name) found.push_back(text);
  return found;
}

TrialRecord measured(const std::string& technique, TrialVerdict verdict, SpeedEstimate speed) {
  TrialRecord record = test::slow_trial(1);
  record.technique = technique;
  record.verdict = verdict;
  record.measured = speed;
  return record;
}

// A verdict of "not faster" bounds the gain by what the judge bet against; without one, the
// interval alone does.
TEST(NoGain, WhatMayBeHiddenFollowsFromIntervalAndVerdict) {
  TrialRecord record = measured("jit", TrialVerdict::kNotFaster, {0.9, 1.0, 1.2, 0.95});
  record.judge.hope = std::log(1.05);
  EXPECT_DOUBLE_EQ(hidden_gain(record).value(), 1.05);
  record.measured->high = 1.03;
  EXPECT_DOUBLE_EQ(hidden_gain(record).value(), 1.03);
  record.verdict = TrialVerdict::kOpen;
  record.measured->high = 1.2;
  EXPECT_DOUBLE_EQ(hidden_gain(record).value(), 1.2);
  EXPECT_FALSE(hidden_gain(test::untried_trial(1)));
}

TEST(NoGain, TellsWhatWasTriedAndTheClosest) {
  const std::vector<TrialRecord> trials = {
      measured("jit", TrialVerdict::kNotFaster, {0.98, 1.0, 1.01, 0.95}),
      measured("bf16", TrialVerdict::kOpen, {0.97, 1.04, 1.12, 0.95}),
      test::untried_trial(3)};
  const auto rows = no_gain_rows(test::sample_summary(false), trials);
  EXPECT_EQ(texts(rows, "tried"),
            Names{"2 changes in 26 pairs of runs; the closest was bf16, 1.04 (0.97 to 1.12) times "
                  "as fast"});
  EXPECT_EQ(texts(rows, "may be hidden"),
            Names{"a gain of up to 1.12 times by bf16, of up to 1.01 by the others: the noise of "
                  "these runs hides what is smaller"});
}

TEST(NoGain, NoGainIsHiddenWhereAllWereSlower) {
  const std::vector<TrialRecord> trials = {
      measured("jit", TrialVerdict::kNotFaster, {0.7, 0.8, 0.9, 0.95})};
  EXPECT_EQ(texts(no_gain_rows(test::sample_summary(false), trials), "may be hidden"),
            Names{"no gain: each of them was seen to be no faster"});
}

TEST(NoGain, SaysSoWhereNothingWasMeasured) {
  const std::vector<TrialRecord> trials = test::records_of(test::useless_for_a_program());
  const auto rows = no_gain_rows(test::program_summary(false), trials);
  EXPECT_EQ(texts(rows, "tried"),
            Names{"nothing was worth a measurement: 7 changes cannot help here"});
  EXPECT_TRUE(texts(rows, "may be hidden").empty());
}

TEST(NoGain, TheNextThingFollowsFromWhatHappened) {
  const OptimizeSummary summary = test::sample_summary(false);
  std::vector<TrialRecord> trials = test::engine_gain().trials;  // guard failed; batch needs leave
  std::erase_if(trials,
                [](const TrialRecord& trial) { return trial.verdict == TrialVerdict::kKept; });
  trials.push_back(measured("jit", TrialVerdict::kOpen, {0.97, 1.04, 1.12, 0.95}));
  trials.push_back(measured("micro", TrialVerdict::kNotTried, {}));
  trials.back().measured.reset();
  trials.back().reason = kNoTime;
  const Names next = texts(no_gain_rows(summary, trials), "next");
  ASSERT_EQ(next.size(), 5u);
  EXPECT_EQ(next[0], "--budget 240 has time for a verdict on jit, which seemed to gain");
  EXPECT_EQ(next[1], "--budget 240 has time to try micro");
  EXPECT_EQ(next[2], "--allow-trajectory also tries batch, which makes other updates");
  EXPECT_EQ(next[3],
            "loss_scale gains, and its numbers failed the guard: ridge ledger explain "
            "runs/fashion_mnist-optimize/ledger.jsonl 4");
  EXPECT_EQ(next[4],
            "a step waits for data for 18 % of its time; ridge train examples/fashion_mnist.toml "
            "--steps 14 --trace step.json && ridge doctor step.json says what a step's time goes "
            "into");
}

// The proof has the last word: what was kept before it is told with what it came to.
TEST(NoGain, AProofThatFailedIsTold) {
  TrialRecord proof =
      measured(std::string(kProofTechnique), TrialVerdict::kOpen, {0.98, 1.02, 1.07, 0.95});
  proof.reason = "no verdict after 2 pairs";
  const std::vector<TrialRecord> trials = {test::kept_trial(1), proof};
  const auto rows = no_gain_rows(test::sample_summary(false), trials);
  EXPECT_EQ(texts(rows, "proof"),
            Names{"what was kept, together: 1.02 (0.98 to 1.07) times as fast, no verdict after 2 "
                  "pairs"});
}

}  // namespace
}  // namespace ridge
