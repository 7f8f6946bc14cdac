// Ledgers in words: what is shown is what is there, and what does not follow from it is told.
#include "ridge/proof/ledger/ledger_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/proof/trial_text.h"
#include "ridge/tune/pytorch/recipe.h"
#include "tests/tune/ledger_records.h"

namespace ridge {
namespace {

Ledger some_ledger() {
  return {.run = test::some_run(),
          .trials = {test::kept_trial(1), test::untried_trial(2), test::slow_trial(3)},
          .note = {}};
}

::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no '" << part << "' in\n" << text;
}

std::string explained(const TrialRecord& trial) {
  return explain_trial(trial, contradictions(trial, hash_of_recipe_text));
}

TEST(LedgerText, TableHasAllTrials) {
  Ledger ledger = some_ledger();
  ledger.trials[0].measured = SpeedEstimate{1.3, 1.35, 1.4, 0.95};
  const std::string text = ledger_table(ledger);
  EXPECT_TRUE(has(text, "run.toml on cpu\ncpu; a processor; 2 CPUs, ridge 0.1.0\n"));
  EXPECT_TRUE(has(text,
                  "\n  1  loader.workers          kept         1.35 (1.30 to 1.40)  1.20 to 1.50\n"
                  "     loader.workers 0 -> 2\n"));
  EXPECT_TRUE(has(text, "\n  2  micro                   not tried    ceiling 1.01\n"));
  EXPECT_TRUE(has(text, "     train.precision \"f32\" -> \"bf16\": not faster by 2 %\n"));
  EXPECT_TRUE(has(text, "\n1 of 3 kept\n"));
}

TEST(LedgerText, ManyChangesAreShownInPart) {
  TrialRecord trial = test::kept_trial();
  trial.change =
      "train.batch 32 -> 64, optimizer.lr 0.001 -> 0.00141421, optimizer.beta1 0.9 -> 0.81, "
      "model.momentum 0.1 -> 0.19";
  EXPECT_TRUE(has(change_and_reason(trial),
                  "train.batch 32 -> 64, optimizer.lr 0.001 -> 0.00141421, and 2 more"));
  EXPECT_TRUE(has(explained(trial), trial.change + "\n"));
  trial.change = "train.f32_modules [] -> " + std::string(100, 'm');
  EXPECT_TRUE(has(change_and_reason(trial), trial.change));
}

TEST(LedgerText, JsonHasRunAndTrials) {
  const auto json = nlohmann::json::parse(ledger_json(some_ledger()));
  EXPECT_EQ(json.at("schema"), "ridge.ledger.show/1");
  EXPECT_EQ(json.at("run").at("seed"), 18446744073709551615u);
  EXPECT_EQ(json.at("trials").size(), 3u);
  EXPECT_EQ(json.at("trials").at(0).at("pairs"), 13);
  EXPECT_TRUE(json.at("trials").at(1).at("measured").is_null());
  EXPECT_FALSE(json.at("trials").at(0).contains("blocks"));
}

TEST(LedgerText, ExplainTellsBeliefsBetsAndWhy) {
  const std::string text = explained(test::kept_trial());
  for (const char* part :
       {"trial 1: loader.workers\n",
        "believed   batches are made while a step computes\n",
        "predicted  1.20 to 1.50 times as fast; bound 1.60, were its part of a step free\n",
        ", 95 %), as predicted\n",
        "pairs      13 judged, 2 dropped; blocks of 20 steps\n",
        "guard      the state has the same bits after 3 steps\n",
        "verdict    kept: faster, and the same bits\n",
        "    [loader]\n    workers = 2\n",
        "dropped\n",
        "Made again from these pairs: faster, at pair ",
        "Verdict, interval and recipe follow from what is recorded.\n"})
    EXPECT_TRUE(has(text, part));
  const std::string untried = explained(test::untried_trial(2));
  EXPECT_TRUE(has(untried, "Nothing was timed.\n"));
  EXPECT_TRUE(has(untried, "verdict    not tried: ceiling 1.01\n"));
  EXPECT_TRUE(has(untried, "predicted  nothing; bound 1.01, were its part of a step free\n"));
}

TEST(LedgerText, BlocksOfOtherStepsAreTold) {
  TrialRecord trial = test::kept_trial();
  trial.semantic_class = SemanticClass::kTrajectory;
  trial.block_steps = 40;
  const std::string text = explained(trial);
  EXPECT_TRUE(has(text, "blocks of 40 steps against 20, for the same samples\n"));
  EXPECT_TRUE(has(text, "class      trajectory: other updates: another trajectory\n"));
}

// Of a trial of many pairs, the one that decides and the last are among those shown.
TEST(LedgerText, LongTrialsAreShownInPart) {
  TrialRecord trial = test::kept_trial();
  trial.pairs = test::some_pairs(400, 0.3, 9);
  test::finish(trial);
  const std::string text = explained(trial);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 90);
  EXPECT_TRUE(has(text, "\n  400  "));
  const size_t at = text.find("faster, at pair ") + 16;
  EXPECT_TRUE(has(text, fmt::format("\n{:>5}  ", text.substr(at, text.find('.', at) - at))));
}

TEST(LedgerText, WhatDoesNotFollowIsTold) {
  EXPECT_TRUE(contradictions(test::kept_trial(), hash_of_recipe_text).empty());
  EXPECT_TRUE(contradictions(test::slow_trial(1), hash_of_recipe_text).empty());
  EXPECT_TRUE(contradictions(test::untried_trial(1), hash_of_recipe_text).empty());
  const auto only = [](const TrialRecord& record) {
    const std::vector<std::string> found = contradictions(record, hash_of_recipe_text);
    return found.size() == 1 ? found[0] : fmt::format("{} found", found.size());
  };
  TrialRecord trial = test::slow_trial(1);
  trial.verdict = TrialVerdict::kKept;
  EXPECT_EQ(only(trial), "the verdict is 'kept', but the pairs say 'not faster'");
  trial = test::kept_trial();
  trial.verdict = TrialVerdict::kOpen;
  EXPECT_EQ(only(trial), "the verdict is 'open', but the pairs say 'faster'");
  trial.verdict = TrialVerdict::kGuardFailed;  // faster, and no good
  EXPECT_TRUE(contradictions(trial, hash_of_recipe_text).empty());
  trial.verdict = TrialVerdict::kUnguarded;
  EXPECT_TRUE(contradictions(trial, hash_of_recipe_text).empty());
  trial.verdict = TrialVerdict::kDropped;
  EXPECT_EQ(only(trial), "the verdict is 'dropped', but the pairs say 'faster'");
  trial = test::slow_trial(1);
  trial.verdict = TrialVerdict::kDropped;
  EXPECT_TRUE(contradictions(trial, hash_of_recipe_text).empty());
  trial.verdict = TrialVerdict::kUnguarded;
  EXPECT_EQ(only(trial), "the verdict is 'unguarded', but the pairs say 'not faster'");
  trial = test::kept_trial();
  trial.measured->low *= 1.001;
  EXPECT_TRUE(has(only(trial), "the interval of the pairs is "));
  EXPECT_TRUE(has(explained(trial), "Does not hold: the interval of the pairs is "));
  trial = test::kept_trial();
  trial.pairs.resize(2);
  trial.verdict = TrialVerdict::kFailed;
  EXPECT_EQ(only(trial), "an interval is given, but the pairs are too few for one");
  trial = test::kept_trial();
  trial.recipe = "[loader]\nworkers = 3\n";
  EXPECT_TRUE(has(only(trial), "the hash of the recipe is "));
  trial.recipe = "[loader]\nworker = 3\n";
  EXPECT_TRUE(has(only(trial), "the recipe cannot be read: recipe:2:1: unknown key"));
}

// `ridge optimize -- CMD` writes recipes of another kind than `ridge optimize CONFIG`.
TEST(LedgerText, RecipesOfProgramsAreRead) {
  ForeignRecipe recipe;
  recipe.set("loader.workers", "2");
  recipe.set_environment("OMP_NUM_THREADS", "1");
  TrialRecord trial = test::kept_trial();
  trial.recipe = to_toml(recipe);
  trial.recipe_hash = recipe_hash(recipe);
  EXPECT_EQ(contradictions(trial, hash_of_recipe_text), std::vector<std::string>{});
  EXPECT_TRUE(has(explained(trial), "Verdict, interval and recipe follow from what is"));
  recipe.set("loader.workers", "3");
  trial.recipe = to_toml(recipe);
  EXPECT_EQ(contradictions(trial, hash_of_recipe_text),
            std::vector<std::string>{"the hash of the recipe is " + recipe_hash(recipe)});
  trial.recipe += "loader.worker = 3\n";
  ASSERT_EQ(contradictions(trial, hash_of_recipe_text).size(), 1u);
  EXPECT_TRUE(
      has(contradictions(trial, hash_of_recipe_text)[0], "the recipe cannot be read: recipe:"));
}

// A ledger from elsewhere cannot move the cursor of a terminal.
TEST(LedgerText, TerminalsAreNotObeyed) {
  EXPECT_EQ(plain_line("a\x1b[2Jb\nc\x7f"), "a?[2Jb?c?");
  EXPECT_EQ(plain_line("\xc2\x9b"
                       "2J \xc2\xb5s"),
            "?2J \xc2\xb5s");
  TrialRecord trial = test::kept_trial();
  trial.technique = trial.change = trial.hypothesis = trial.reason = trial.guard = "\x1b]0;x\x07";
  trial.machine = trial.plan_hash = trial.recipe_hash = trial.recipe = "\x1b[A";
  const std::string text = explained(trial) + trial_table({&trial, 1}) + trial_note(trial);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

}  // namespace
}  // namespace ridge
