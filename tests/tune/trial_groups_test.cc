// What the trials are to a reader: what was kept and what came close is a table, what cannot help
// is a line, and a bound is no promise.
#include "ridge/proof/trial_groups.h"

#include <gtest/gtest.h>

#include "ridge/proof/trial_text.h"
#include "tests/tune/sample_reports.h"

namespace ridge {
namespace {

using Names = std::vector<std::string>;

Names names_of(const std::vector<const TrialRecord*>& records) {
  Names names;
  for (const TrialRecord* record : records) names.push_back(record->technique);
  return names;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(TrialGroups, EachTrialIsInOne) {
  const test::SampleReport report = test::engine_gain();
  const TrialGroups groups = group_trials(report.trials);
  EXPECT_EQ(names_of(groups.kept), (Names{"loader.workers", "bf16"}));
  // The largest gain first, what failed last.
  EXPECT_EQ(names_of(groups.close), (Names{"loss_scale", "jit", "threads"}));
  EXPECT_EQ(names_of(groups.untried), Names{"batch"});
  EXPECT_EQ(names_of(groups.useless), (Names{"recompute", "micro", "metrics", "kernels"}));
}

// A change that the recorded steps rule out is one line with the reason, also in a dry run.
TEST(TrialGroups, WhatNothingSupportsIsOneLine) {
  std::vector<TrialRecord> trials = {test::kept_trial(1)};
  for (const char* name : {"allocator", "interop_threads"}) {
    TrialRecord& record = trials.emplace_back(test::untried_trial(2));
    record.technique = name;
    record.change = std::string(name) + " = 1";
    record.ceiling = 1.0;
    record.reason = kUnsupported;
  }
  EXPECT_EQ(names_of(group_trials(trials).untried), (Names{"allocator", "interop_threads"}));
  for (const bool is_dry : {false, true})
    EXPECT_EQ(count(grouped_trials(trials, {.untried = is_dry}),
                    "  not tried (no finding, wait or operator of the recorded steps supports it): "
                    "allocator, interop_threads\n"),
              1u);
}

TEST(TrialGroups, TheProofIsNoTrial) {
  TrialRecord proof = test::kept_trial(2);
  proof.technique = kProofTechnique;
  const std::vector<TrialRecord> trials = {test::kept_trial(1), proof};
  const TrialGroups groups = group_trials(trials);
  EXPECT_EQ(groups.kept.size(), 1u);
  EXPECT_TRUE(groups.close.empty());
}

TEST(TrialGroups, WhatWasDroppedLaterIsNotAmongTheKept) {
  TrialRecord gone = test::kept_trial(2);
  gone.technique = std::string(kWithout) + "loader.workers";
  gone.verdict = TrialVerdict::kDropped;
  const std::vector<TrialRecord> trials = {test::kept_trial(1), gone};
  const TrialGroups groups = group_trials(trials);
  EXPECT_TRUE(groups.kept.empty());
  ASSERT_EQ(groups.close.size(), 2u);
  for (const TrialRecord* record : groups.close)
    EXPECT_EQ(verdict_words(*record, false), "dropped");
  gone.verdict = TrialVerdict::kKept;  // it stayed: that trial is no step of its own
  const std::vector<TrialRecord> stayed = {test::kept_trial(1), gone, test::slow_trial(3)};
  EXPECT_EQ(group_trials(stayed).kept.size(), 1u);
  EXPECT_EQ(names_of(group_trials(stayed).close), (Names{"bf16", "without loader.workers"}));
  EXPECT_EQ(verdict_words(gone, false), "stays");
}

// What had no time, or was forbidden, may help: it is not called useless.
TEST(TrialGroups, WantOfTimeIsNoFault) {
  const std::vector<TrialRecord> trials = test::records_of(
      {{"jit", "", TrialVerdict::kNotTried, std::string(kNoTime)},
       {"pinning", "pin", TrialVerdict::kNotTried, std::string(kNoTime), 0, SpeedRange{0.9, 1.1}},
       {"micro", "train.micro 1 -> 2", TrialVerdict::kNotTried, std::string(kWasStopped)},
       {"bf16",
        "precision",
        TrialVerdict::kNotTried,
        std::string(kNoTime),
        0,
        SpeedRange{1.1, 1.3}},
       {"batch",
        "loader.workers = 2",
        TrialVerdict::kRefused,
        "it makes another trajectory: only with --allow-trajectory",
        0,
        {},
        {},
        SemanticClass::kTrajectory}});
  const TrialGroups groups = group_trials(trials);
  EXPECT_EQ(names_of(groups.close), Names{"bf16"});  // a likely gain is worth a row
  EXPECT_EQ(names_of(groups.untried), (Names{"jit", "pinning", "micro", "batch"}));
  EXPECT_TRUE(groups.useless.empty());
  EXPECT_EQ(useless_words(groups), "");
  EXPECT_EQ(untried_lines(groups),
            (Names{"not tried (it makes another trajectory: only with --allow-trajectory): batch",
                   "not tried (stopped by a signal): micro",
                   "not tried (the budget has no time left for it): jit, pinning"}));
  // Of a dry run each is a row: it is a plan.
  const std::string plan = grouped_trials(trials, {.untried = true});
  EXPECT_EQ(plan.find("not tried ("), std::string::npos) << plan;
  EXPECT_NE(
      plan.find("  1  jit                     not tried    the budget has no time left for it\n"),
      std::string::npos)
      << plan;
}

TEST(TrialGroups, AnythingMayBeInThem) {
  TrialRecord odd = test::slow_trial(1);
  odd.measured = SpeedEstimate{NAN, NAN, NAN, 0.95};
  const std::vector<TrialRecord> trials = {odd, test::slow_trial(2), odd, test::kept_trial(3)};
  EXPECT_EQ(group_trials(trials).close.size(), 3u);
  EXPECT_TRUE(group_trials({}).kept.empty());
  EXPECT_EQ(grouped_trials({}, {.all = true, .untried = true}), "");
}

TEST(GroupedTrials, ShowEachTrialOnceAndFoldWhatCannotHelp) {
  const test::SampleReport report = test::program_gain();
  const std::string text = grouped_trials(report.trials);
  EXPECT_EQ(count(text, "technique "), 1u);
  for (const char* name :
       {"  1  channels_last ", "  2  autocast ", "  4  optimizer.fused ", "  5  compile "})
    EXPECT_EQ(count(text, name), 1u) << name << text;
  // What a program said is one line, and what was changed the next.
  EXPECT_NE(text.find("failed       exit code 1; its last lines: | Traceback"), std::string::npos);
  EXPECT_NE(text.find("CppCompileError\n     compile = \"default\"\n"), std::string::npos);
  EXPECT_EQ(text.find("CUDA"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\n\n  7 others cannot help here; --all says why\n")) << text;
  const std::string all = grouped_trials(report.trials, {.all = true});
  EXPECT_TRUE(all.starts_with(text.substr(0, text.find("; --all")))) << all;
  EXPECT_NE(
      all.find("cannot help here:\n  6  cudnn.benchmark         refused      the program does "
               "not use CUDA\n"),
      std::string::npos)
      << all;
  EXPECT_NE(all.find("huge_pages              not tried    it is so already\n"), std::string::npos);
}

TEST(GroupedTrials, SayWhereNothingCanHelp) {
  const std::vector<TrialRecord> one = {test::untried_trial(1)};
  EXPECT_EQ(grouped_trials(one), "  1 change cannot help here; --all says why\n");
  const std::vector<TrialRecord> trials = test::records_of(test::useless_for_a_program());
  EXPECT_EQ(grouped_trials(trials), "  7 changes cannot help here; --all says why\n");
}

// Verdict, measurement and prediction of every row lie within the first 80 columns.
TEST(GroupedTrials, DecidingColumnsFitANarrowTerminal) {
  for (const test::SampleReport& report : test::sample_reports()) {
    const std::string text = grouped_trials(report.trials);
    for (const TrialRecord& record : report.trials) {
      if (!record.measured) continue;
      const size_t at = text.find(measured_text(record));
      ASSERT_NE(at, std::string::npos) << record.technique;
      EXPECT_LE(text.find('\n', at) - text.rfind('\n', at), 81u) << text;
    }
  }
}

// A ceiling says what would be if a part of the step were free. One that is far off rules out
// nothing, and is not shown as if it could be reached.
TEST(Predictions, BoundsThatNoChangeReachesAreNotShown) {
  TrialRecord record = test::untried_trial(1);
  for (const double ceiling : {27.62, 60.39, 2.0}) {
    record.ceiling = ceiling;
    EXPECT_EQ(predicted_text(record), "-") << ceiling;
  }
  record.ceiling = 1.28;
  EXPECT_EQ(predicted_text(record), "bound 1.28");
  record.predicted = SpeedRange{1.1, 1.2};
  EXPECT_EQ(predicted_text(record), "1.10 to 1.20");
  record.ceiling.reset();
  record.predicted.reset();
  EXPECT_EQ(predicted_text(record), "-");
}

TEST(TrialNote, IsAShortLineOfWhatWasRun) {
  TrialRecord record = test::kept_trial(3);
  record.measured = SpeedEstimate{1.3, 1.35, 1.4, 0.95};
  EXPECT_EQ(trial_note(record),
            "trial 3: loader.workers 0 -> 2: kept, 1.35 (1.30 to 1.40) times as fast");
  EXPECT_EQ(trial_note(test::untried_trial(1)), "");
  record.measured.reset();
  record.verdict = TrialVerdict::kFailed;
  EXPECT_EQ(trial_note(record), "trial 3: loader.workers 0 -> 2: failed");
}

}  // namespace
}  // namespace ridge
