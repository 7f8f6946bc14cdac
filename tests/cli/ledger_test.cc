// `ridge ledger` from a file to what a user reads.
#include "ridge/proof/ledger/ledger.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridge/tune/pytorch/recipe.h"
#include "tests/cli/ridge_process.h"
#include "tests/cli/run_words.h"
#include "tests/support/scale.h"
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

// ---- ledgers of configurations and of commands ----

// The ledger of a run with one kept step, and what `ridge ledger replay` needs besides to time it.
struct Kind {
  const char* name;
  LedgerRun run;
  std::string before, recipe;
  std::vector<std::string> subject;
};

ForeignRecipe slower(const char* factor) {
  ForeignRecipe recipe;
  recipe.set_environment("SLOWER", factor);
  return recipe;
}

std::vector<Kind> both_kinds() {
  LedgerRun command = test::some_run();
  command.target = "gate_steps";
  command.config = "python3 gate_steps.py plain 100000";
  const std::string program =
      std::filesystem::absolute("tests/attach/programs/gate_steps.py").string();
  return {{"configuration", test::some_run(), "", "cpu.jit = true\n", {}},
          {"command",
           command,
           to_toml(slower("8")),
           to_toml(slower("1")),
           {"--rerun", "--trust", "--", "python3", program, "plain", "100000"}}};
}

// Writes the ledger of `kind`, and a configuration beside it whose kernels run block by block.
std::string write_ledger(const test::TempFolder& folder, const Kind& kind) {
  const std::string path = (folder / "ledger.jsonl").string();
  LedgerWriter writer(path, kind.run);
  TrialRecord trial = test::kept_trial(1);
  trial.recipe_before = kind.before;
  trial.recipe = kind.recipe;
  trial.recipe_hash = hash_of_recipe_text(kind.recipe);
  writer.add(trial);
  trial.number = 2;
  trial.technique = kProofTechnique;
  trial.predicted.reset();
  writer.add(trial);
  if (kind.subject.empty())
    std::ofstream(folder / "config.toml")
        << "cpu.jit = false\n[model]\nkind = 'mlp'\nhidden = [512]\noutputs = 3\n[data]\n"
           "kind = 'random'\nshape = [8]\nsamples = 4096\nclasses = 3\n[loader]\nworkers = 0\n"
           "[train]\nbatch = 256\nsteps = 1000\n";
  return path;
}

TEST(BothLedgers, AreReadByTheSameVerbs) {
  std::vector<std::string> all = {"ledger", "predictions"};
  std::vector<std::unique_ptr<test::TempFolder>> folders;
  for (const Kind& kind : both_kinds()) {
    SCOPED_TRACE(kind.name);
    folders.push_back(std::make_unique<test::TempFolder>());
    const std::string path = write_ledger(*folders.back(), kind);
    all.push_back(path);
    const Outcome shown = run({"ledger", "show", path});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_TRUE(shown.out.starts_with(kind.run.target + "\n")) << shown.out;
    EXPECT_EQ(
        nlohmann::json::parse(run({"ledger", "show", path, "--json"}).out).at("trials").size(), 2u);
    const Outcome explained = run({"ledger", "explain", path, "1"});
    EXPECT_EQ(explained.code, 0) << explained.out;
    EXPECT_NE(explained.out.find("recipe follow from what is recorded"), std::string::npos)
        << explained.out;
    EXPECT_EQ(run({"ledger", "replay", path, "9"}).err,
              "error: the ledger has no trial 9; its trials are 1 to 2\n");
  }
  const Outcome predictions = run(all);
  EXPECT_TRUE(predictions.out.starts_with("2 of 2 measured gains lie")) << predictions.out;
  // Only the command itself can be run again.
  const Outcome lost = run({"ledger", "replay", all.back(), "--trust"});
  EXPECT_EQ(lost.code, 2);
  EXPECT_NE(lost.err.find("the ledger is of a command, which 'ridge ledger replay"),
            std::string::npos)
      << lost.err;
}

// A time decides nothing here: a machine that is busy may see no gain.
TEST(BothLedgers, AreReplayedByTheSameVerb) {
  if (!test::is_full_scale()) GTEST_SKIP() << "times programs for seconds: RIDGE_TEST_SCALE=full";
  if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  for (const Kind& kind : both_kinds()) {
    SCOPED_TRACE(kind.name);
    const test::TempFolder folder;
    write_ledger(folder, kind);
    std::vector<std::string> words = {
        "ledger", "replay", "ledger.jsonl", "--budget", "24", "--json"};
    words.insert(words.end(), kind.subject.begin(), kind.subject.end());
    const test::Ended ended = test::ridge(folder.path(), words);
    ASSERT_TRUE(ended.code == 0 || ended.code == 1) << ended.err;
    const auto json = nlohmann::json::parse(ended.out);
    EXPECT_EQ(json.at("schema"), "ridge.ledger.replay/1");
    EXPECT_EQ(json.at("number"), 2);
    EXPECT_EQ(json.at("technique"), std::string(kProofTechnique));
    EXPECT_GE(json.at("pairs"), 1);
  }
}

}  // namespace
}  // namespace ridge
