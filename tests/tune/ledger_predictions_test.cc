// How good predictions were, over several ledgers.
#include "ridge/proof/ledger/ledger_predictions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/proof/ledger/ledger_history.h"
#include "tests/support/temp_folder.h"
#include "tests/tune/ledger_records.h"

namespace ridge {
namespace {

TrialRecord trial(double low, double high, double measured) {
  TrialRecord record = test::kept_trial(1);
  record.predicted = SpeedRange{low, high};
  record.measured = SpeedEstimate{measured, measured, measured, 0.95};
  return record;
}

Ledger ledger_of(std::vector<TrialRecord> trials) {
  return {.run = test::some_run(), .trials = std::move(trials), .note = {}};
}

TEST(LedgerPredictions, CountsGainsWithinTheirRange) {
  TrialRecord proof = trial(1, 2, 9), without = trial(1, 2, 9), unpredicted = trial(1, 2, 9);
  proof.technique = kProofTechnique;
  without.technique = std::string(kWithout) + "jit";
  unpredicted.predicted.reset();
  const std::vector<Ledger> ledgers = {
      ledger_of({trial(1, 1.5, 1.2), trial(1, 1.1, 1.1), proof, test::untried_trial(2)}),
      ledger_of({trial(0.5, 1, 1.25), without, unpredicted, trial(1, 1.2, 1)})};
  const PredictionScore score = prediction_score(ledgers);
  EXPECT_EQ(score.all.measured, 4);
  EXPECT_EQ(score.all.inside, 3);
  EXPECT_DOUBLE_EQ(score.all.coverage(), 0.75);
  EXPECT_DOUBLE_EQ(score.all.median_width, 1.35);  // of 1.5, 1.1, 2, 1.2
  ASSERT_EQ(score.outside.size(), 1u);
  EXPECT_EQ(score.outside[0].measured, 1.25);
  EXPECT_EQ(predictions_text(score),
            "3 of 4 measured gains lie within their prediction (75 %); median high / low of "
            "predictions 1.35\n  loader.workers         3 of 4 (75 %), 1.35\noutside:\n  run.toml "
            "on cpu: loader.workers: loader.workers 0 -> 2: predicted "
            "0.50 .. 1.00, measured 1.25\n");
  const auto json = nlohmann::json::parse(predictions_json(score));
  EXPECT_EQ(json.at("schema"), "ridge.ledger.predictions/1");
  EXPECT_EQ(json.at("coverage"), 0.75);
  EXPECT_EQ(json.at("outside").at(0).at("lo"), 0.5);
}

// Trials of a program: two techniques, and one of them without a verdict until it was tried again.
TEST(LedgerPredictions, EachTechniqueIsCounted) {
  TrialRecord fused = trial(1, 2, 1.5), open = trial(1, 4, 9), again = trial(1, 4, 2);
  fused.technique = "optimizer.fused";
  for (TrialRecord* record : {&open, &again}) {
    record->technique = "model.compile";
    record->change = "model.compile = \"default\"";
  }
  open.verdict = TrialVerdict::kOpen;
  const std::vector<Ledger> ledgers = {ledger_of({open, fused, again}), ledger_of({open})};
  const PredictionScore score = prediction_score(ledgers);
  EXPECT_EQ(score.all.measured, 3);
  EXPECT_EQ(score.all.inside, 2);
  ASSERT_EQ(score.techniques.size(), 2u);
  EXPECT_EQ(score.techniques.at("optimizer.fused").measured, 1);
  EXPECT_EQ(score.techniques.at("optimizer.fused").median_width, 2);
  EXPECT_EQ(score.techniques.at("model.compile").measured, 2);
  EXPECT_EQ(score.techniques.at("model.compile").inside, 1) << "nobody tried it again in the other";
  const auto json = nlohmann::json::parse(predictions_json(score));
  EXPECT_EQ(json.at("techniques").at(0).at("technique"), "model.compile");
  EXPECT_EQ(json.at("techniques").at(0).at("coverage"), 0.5);
  EXPECT_EQ(json.at("techniques").at(1).at("median_width"), 2);
}

TEST(LedgerPredictions, NothingMeasuredIsSaid) {
  const std::vector<Ledger> ledgers = {ledger_of({test::untried_trial(1)})};
  EXPECT_EQ(predictions_text(prediction_score(ledgers)),
            "no gain was both predicted and measured\n");
  EXPECT_EQ(prediction_score({}).all.coverage(), 1);
}

TEST(LedgerHistory, SharesAreOfTheTimeBelowTheCeiling) {
  EXPECT_DOUBLE_EQ(saved_share(2, 4), 2.0 / 3);
  EXPECT_DOUBLE_EQ(saved_share(4, 4), 1);
  EXPECT_DOUBLE_EQ(saved_share(2, std::nullopt), 0.5);
  EXPECT_LT(saved_share(0.5, 4), 0);
  for (double gain : {0.5, 1.0, 1.7, 4.0})
    EXPECT_NEAR(gain_of_share(saved_share(gain, 4), 4), gain, 1e-12);
  EXPECT_DOUBLE_EQ(gain_of_share(3, 4), 4);  // cut at the ceiling
  EXPECT_DOUBLE_EQ(gain_of_share(0.5, 1), 1);
}

TEST(LedgerHistory, OfThisMachineAndOfWhatWasTimed) {
  TrialRecord proof = trial(1, 2, 1.5), without = trial(1, 2, 1.5), blind = trial(1, 2, 1.5);
  proof.technique = kProofTechnique;
  without.technique = std::string(kWithout) + "jit";
  blind.ceiling = 1.01;
  TrialRecord free = trial(1, 2, 2);
  free.ceiling.reset();
  free.technique = free.change = "allocator";
  TrialRecord given_up = test::untried_trial(3);
  given_up.technique = "jit";
  given_up.change = "jit on";
  given_up.ceiling.reset();
  for (const double ratio : {-0.1, 0.0, -0.2}) given_up.pairs.push_back({.log_ratio = ratio});
  given_up.pairs.push_back({.dropped = true, .log_ratio = 3});
  std::vector<Ledger> ledgers = {
      ledger_of({trial(1, 1.5, 1.6), proof, free}),
      ledger_of({without, blind, test::untried_trial(2), given_up, trial(1, 1.2, 1)}),
      ledger_of({trial(1, 1.2, 1.3)})};
  ledgers[2].run.machine = "another";
  const GainHistory history = gain_history(ledgers, test::some_run().machine);
  ASSERT_EQ(history.size(), 3u);
  EXPECT_EQ(history.at("allocator").at(0).gain, 2);
  EXPECT_FALSE(history.at("allocator").at(0).ceiling);
  EXPECT_NEAR(history.at("jit on").at(0).gain, std::exp(-0.1), 1e-12);
  const std::vector<PastGain>& gains = history.at(trial(1, 1.5, 1.6).change);
  ASSERT_EQ(gains.size(), 2u);
  EXPECT_EQ(gains[0].gain, 1.6);
  EXPECT_EQ(gains[0].ceiling, 1.6);
  EXPECT_EQ(gains[1].gain, 1);
}

TEST(LedgerHistory, ReadsWhatCanBeRead) {
  const test::TempFolder folder;
  for (const char* name : {"one", "broken", "empty"}) {
    std::filesystem::create_directory(folder / name);
  }
  LedgerWriter(std::filesystem::path(folder / "one") / "ledger.jsonl", test::some_run());
  std::ofstream(folder / "broken/ledger.jsonl") << "{";
  ASSERT_EQ(ledgers_beneath(folder.path()).size(), 1u);
  EXPECT_EQ(ledgers_beneath(folder.path())[0].run.target, "run.toml on cpu");
  EXPECT_TRUE(ledgers_beneath(folder / "none").empty());
}

}  // namespace
}  // namespace ridge
