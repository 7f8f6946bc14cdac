// The confirmation of what was kept, by runs whose losses are made up.
#include "ridge/tune/pytorch/confirm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace ridge {
namespace {

/// A run that begins at a loss of 2 and ends at `last`, in a straight line to the last quarter.
TrainedRun run_to(double last, double seconds = 10, int64_t steps = 100) {
  TrainedRun run{.has_ended = true, .seconds = seconds};
  for (int64_t i = 0; i < steps; ++i) {
    const double way = std::min(1.0, static_cast<double>(i) / (0.7 * static_cast<double>(steps)));
    run.losses.push_back(2 + (last - 2) * way);
  }
  return run;
}

TrainedRun evaluated(TrainedRun run, int64_t step, const std::string& loss) {
  run.evaluations.push_back({.step = step, .loss = loss, .samples = 64});
  run.evaluated = static_cast<int64_t>(run.evaluations.size());
  return run;
}

/// Runs by side and seed; what is asked for is written down.
class MadeUpRuns {
 public:
  std::map<std::pair<bool, int64_t>, TrainedRun> runs{};
  std::vector<std::pair<bool, int64_t>> asked{};

  TrainOnce train() {
    return [this](bool is_result, int64_t reseed) {
      asked.emplace_back(is_result, reseed);
      return runs.at({is_result, reseed});
    };
  }
};

TEST(Confirm, OnePairIsHeldAgainstTheProgressOfTraining) {
  for (const auto& [last, verdict] : {std::pair(0.51, ConfirmVerdict::kConfirmed),
                                      std::pair(0.2, ConfirmVerdict::kConfirmed),
                                      std::pair(0.54, ConfirmVerdict::kCannotTell),
                                      std::pair(0.9, ConfirmVerdict::kRefused),
                                      std::pair(std::nan(""), ConfirmVerdict::kRefused)}) {
    MadeUpRuns made;
    made.runs[{false, 0}] = run_to(0.5);
    made.runs[{true, 0}] = run_to(last);
    const OptimizeConfirmation said = confirm_training(made.train(), 15);
    EXPECT_EQ(said.verdict, verdict) << last << ": " << said.text;
    EXPECT_EQ(said.loss, "training loss");
    EXPECT_EQ(said.pairs, 1);
    EXPECT_EQ(said.steps, 100);
    EXPECT_NEAR(*said.margin, 0.02 * 1.5, 0.002);  // of what training took off the loss
    if (std::isnan(last)) continue;
    EXPECT_NEAR(*said.difference, last - 0.5, 1e-9);
  }
}

TEST(Confirm, OtherSeedsAreTakenAsTimeAllowsAndFixTheMarginFirst) {
  MadeUpRuns made;
  for (int64_t seed = 0; seed < 9; ++seed) {
    made.runs[{false, seed}] = run_to(0.5 + 0.1 * static_cast<double>(seed % 2));
    made.runs[{true, seed}] = run_to(0.52 + 0.1 * static_cast<double>(seed % 2));
  }
  const OptimizeConfirmation said = confirm_training(made.train(), 55);
  EXPECT_EQ(said.pairs, 5);  // of ten seconds each
  EXPECT_EQ(said.verdict, ConfirmVerdict::kConfirmed) << said.text;
  // 0.5, 0.6, 0.5, 0.6, 0.5 deviate by 0.0548.
  EXPECT_NEAR(*said.margin, 2 * 0.0548, 0.001);
  ASSERT_EQ(made.asked.size(), 10u);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_EQ(made.asked[i], std::pair(i >= 5, static_cast<int64_t>(i % 5)));
  EXPECT_EQ(confirm_training(made.train(), 1e9).pairs, 8);
}

TEST(Confirm, SeveralPairsRefuseAWorseTraining) {
  MadeUpRuns made;
  for (int64_t seed = 0; seed < 4; ++seed) {
    made.runs[{false, seed}] = run_to(0.5 + 0.01 * static_cast<double>(seed));
    made.runs[{true, seed}] = run_to(0.62 + 0.01 * static_cast<double>(seed % 2));
  }
  const OptimizeConfirmation said = confirm_training(made.train(), 40);
  EXPECT_EQ(said.verdict, ConfirmVerdict::kRefused) << said.text;
  EXPECT_NE(said.text.find("in 4 pairs of runs of 100 steps"), std::string::npos) << said.text;
  // Differences that scatter around the margin say nothing.
  for (int64_t seed = 0; seed < 4; ++seed)
    made.runs[{true, seed}] = run_to(seed % 2 == 0 ? 0.3 : 0.8);
  EXPECT_EQ(confirm_training(made.train(), 40).verdict, ConfirmVerdict::kCannotTell);
}

TEST(Confirm, HeldOutLossesWinOverTrainingLosses) {
  MadeUpRuns made;
  made.runs[{false, 0}] = evaluated(evaluated(run_to(0.5), 50, "0.9"), 100, "0.7");
  made.runs[{true, 0}] = evaluated(evaluated(run_to(0.5), 50, "0.9"), 100, "1.5");
  OptimizeConfirmation said = confirm_training(made.train(), 10);
  EXPECT_EQ(said.loss, "held-out loss");
  EXPECT_EQ(said.verdict, ConfirmVerdict::kRefused) << said.text;
  EXPECT_NEAR(*said.difference, 0.8, 1e-9);
  // It must be there at the same step.
  made.runs[{true, 0}] = evaluated(run_to(0.5), 50, "0.9");
  said = confirm_training(made.train(), 10);
  EXPECT_EQ(said.verdict, ConfirmVerdict::kCannotTell);
  EXPECT_NE(said.text.find("has no held-out loss"), std::string::npos) << said.text;
  made.runs[{true, 0}] = evaluated(run_to(0.5), 100, "nan");
  EXPECT_EQ(confirm_training(made.train(), 10).verdict, ConfirmVerdict::kRefused);
  // A metric at each step is no evaluation.
  for (const bool is_result : {false, true}) {
    made.runs[{is_result, 0}] = evaluated(run_to(0.5), 99, is_result ? "5" : "0");
    made.runs[{is_result, 0}].evaluated = 99;
  }
  said = confirm_training(made.train(), 10);
  EXPECT_EQ(said.loss, "training loss");
  EXPECT_EQ(said.verdict, ConfirmVerdict::kConfirmed) << said.text;
}

TEST(Confirm, PrintedLossesAreOfRunsThatCameToTheirEnd) {
  MadeUpRuns made;
  made.runs[{false, 0}] = run_to(0.5);
  made.runs[{true, 0}] = run_to(0.5);
  made.runs[{false, 0}].printed = 0.3;
  made.runs[{true, 0}].printed = 0.8;
  EXPECT_EQ(confirm_training(made.train(), 10).verdict, ConfirmVerdict::kRefused);
  for (auto& [key, run] : made.runs) run.has_ended = false;
  const OptimizeConfirmation said = confirm_training(made.train(), 10);
  EXPECT_EQ(said.loss, "training loss");
  EXPECT_EQ(said.verdict, ConfirmVerdict::kConfirmed);
}

TEST(Confirm, WithoutALossNothingIsSaid) {
  MadeUpRuns made;
  made.runs[{false, 0}] = {.seconds = 3};
  OptimizeConfirmation said = confirm_training(made.train(), 3);
  EXPECT_EQ(said.verdict, ConfirmVerdict::kCannotTell);
  EXPECT_NE(said.text.find("no loss that was seen"), std::string::npos) << said.text;
  made.runs[{false, 0}] = run_to(std::nan(""));
  said = confirm_training(made.train(), 3);
  EXPECT_EQ(said.verdict, ConfirmVerdict::kCannotTell);
  EXPECT_NE(said.text.find("not finite"), std::string::npos) << said.text;
  EXPECT_EQ(made.asked.back(), std::pair(false, int64_t{0})) << "the result need not run";
}

TEST(Confirm, PrintedLossesAreFound) {
  EXPECT_EQ(printed_loss("epoch 1 train_loss 0.9 val_loss: 0.50\nepoch 2 val_loss: 0.25\n"), 0.25);
  EXPECT_EQ(printed_loss("Test loss = 1.5e-3, accuracy 0.9"), 1.5e-3);
  EXPECT_EQ(printed_loss("{'eval_loss': 2.5, 'epoch': 3}"), 2.5);
  EXPECT_EQ(printed_loss("validation: loss 3"), 3);
  EXPECT_EQ(printed_loss("loss/test 0.5 test/loss 0.75"), 0.75);
  EXPECT_TRUE(std::isnan(printed_loss("val loss nan").value()));
  for (const char* text :
       {"", "loss 0.5", "train loss 0.5", "latest loss 0.5", "val loss is low", "val_loss"})
    EXPECT_EQ(printed_loss(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ridge
