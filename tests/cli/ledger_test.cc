// `ridge ledger` from a file to what a user reads.
#include "ridge/proof/ledger/ledger.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_words.h"
#include "tests/support/temp_folder.h"
#include "tests/tune/ledger_records.h"

namespace ridge {
namespace {

using test::Outcome;
using test::run;

class LedgerVerb : public ::testing::Test {
 protected:
  LedgerVerb() : path_((folder_ / "ledger.jsonl").string()) {
    LedgerWriter writer(path_, test::some_run());
    writer.add(test::kept_trial(1));
    writer.add(test::untried_trial(2));
    TrialRecord wrong = test::slow_trial(3);
    wrong.verdict = TrialVerdict::kKept;
    writer.add(wrong);
  }

  test::TempFolder folder_;
  std::string path_;
};

TEST_F(LedgerVerb, ShowsAllTrials) {
  const Outcome text = run({"ledger", "show", path_});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.err, "");
  EXPECT_TRUE(text.out.starts_with("run.toml on cpu\n")) << text.out;
  EXPECT_NE(text.out.find("\n  2  micro "), std::string::npos) << text.out;
  const auto json = nlohmann::json::parse(run({"ledger", "show", path_, "--json"}).out);
  EXPECT_EQ(json.at("trials").size(), 3u);
  EXPECT_EQ(json.at("trials").at(0).at("verdict"), "kept");
}

TEST_F(LedgerVerb, ExplainsOneAndFindsWhatDoesNotHold) {
  const Outcome good = run({"ledger", "explain", path_, "1"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_TRUE(good.out.starts_with("trial 1: loader.workers\n"));
  EXPECT_EQ(run({"ledger", "explain", path_, "2"}).code, 0);
  const Outcome wrong = run({"ledger", "explain", path_, "3"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.out.find("Does not hold: the verdict is 'kept'"), std::string::npos);
  const Outcome missing = run({"ledger", "explain", path_, "4"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.err, "error: the ledger has no trial 4; its trials are 1 to 3\n");
}

TEST_F(LedgerVerb, TellsHowGoodPredictionsWereOverSeveralRuns) {
  const Outcome text = run({"ledger", "predictions", path_, path_});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("2 of 4 measured gains lie within their prediction (50 %)"))
      << text.out;
  const auto json = nlohmann::json::parse(run({"ledger", "predictions", path_, "--json"}).out);
  EXPECT_EQ(json.at("measured"), 2);
  EXPECT_EQ(run({"ledger", "predictions"}).code, 2);
}

TEST_F(LedgerVerb, LineThatAKillCutOffIsTold) {
  std::ofstream(path_, std::ios::app) << "{\"number\":4,";
  const Outcome text = run({"ledger", "show", path_});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.err,
            "note: " + path_ + ":5: the last line is cut off; its 12 bytes are left out\n");
  std::ofstream(path_, std::ios::app) << "\n";
  const Outcome bad = run({"ledger", "show", path_});
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.err, "error: " + path_ + ":5: not valid JSON at byte 13\n");
}

}  // namespace
}  // namespace ridge
