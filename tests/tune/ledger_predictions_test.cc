// How good predictions were, over several ledgers.
#include "ridge/proof/ledger/ledger_predictions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  EXPECT_EQ(score.measured, 4);
  EXPECT_EQ(score.inside, 3);
  EXPECT_DOUBLE_EQ(score.coverage(), 0.75);
  EXPECT_DOUBLE_EQ(score.median_width, 1.35);  // of 1.5, 1.1, 2, 1.2
  ASSERT_EQ(score.outside.size(), 1u);
  EXPECT_EQ(score.outside[0].measured, 1.25);
  EXPECT_EQ(predictions_text(score),
            "3 of 4 measured gains lie within their prediction (75 %); median high / low of "
            "predictions 1.35\n  run.toml on cpu: loader.workers: loader.workers 0 -> 2: predicted "
            "0.50 .. 1.00, measured 1.25\n");
  const auto json = nlohmann::json::parse(predictions_json(score));
  EXPECT_EQ(json.at("schema"), "ridge.ledger.predictions/1");
  EXPECT_EQ(json.at("coverage"), 0.75);
  EXPECT_EQ(json.at("outside").at(0).at("lo"), 0.5);
}

TEST(LedgerPredictions, NothingMeasuredIsSaid) {
  const std::vector<Ledger> ledgers = {ledger_of({test::untried_trial(1)})};
  EXPECT_EQ(predictions_text(prediction_score(ledgers)),
            "no gain was both predicted and measured\n");
  EXPECT_EQ(prediction_score({}).coverage(), 1);
}

}  // namespace
}  // namespace ridge
