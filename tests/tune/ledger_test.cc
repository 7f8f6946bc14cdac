// Ledgers: what is written reads back, what a kill leaves is read, and damage is told with its
// line.
#include "ridge/proof/ledger/ledger.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"
#include "tests/tune/ledger_records.h"

namespace ridge {
namespace {

std::string some_ledger() {
  return to_json(test::some_run()) + to_json(test::kept_trial(1)) +
         to_json(test::untried_trial(2)) + to_json(test::slow_trial(4));
}

std::string printed(const Ledger& ledger) {
  std::string text = to_json(ledger.run);
  for (const TrialRecord& trial : ledger.trials) text += to_json(trial);
  return text;
}

std::string refusal(const std::string& text) {
  return test::user_error([&] { parse_ledger(text, "l.jsonl"); });
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(Ledger, ReadsBackToTheLastBit) {
  const Ledger ledger = parse_ledger(some_ledger(), "l.jsonl");
  EXPECT_EQ(ledger.note, "");
  EXPECT_EQ(ledger.run.seed, 18446744073709551615u);
  EXPECT_EQ(ledger.run.target, "run.toml on cpu");
  ASSERT_EQ(ledger.trials.size(), 3u);
  const TrialRecord& kept = ledger.trials[0];
  const TrialRecord expected = test::kept_trial(1);
  EXPECT_EQ(kept.change, expected.change);
  EXPECT_EQ(kept.recipe, expected.recipe);
  EXPECT_EQ(kept.predicted->high, 1.5);
  EXPECT_EQ(kept.measured->mid, expected.measured->mid);
  EXPECT_EQ(kept.recipe_hash, expected.recipe_hash);
  ASSERT_EQ(kept.pairs.size(), 15u);
  for (size_t i = 0; i < kept.pairs.size(); ++i) {
    EXPECT_EQ(kept.pairs[i].seconds, expected.pairs[i].seconds);
    EXPECT_EQ(kept.pairs[i].log_ratio, expected.pairs[i].log_ratio);
    EXPECT_EQ(kept.pairs[i].before_outside, expected.pairs[i].before_outside);
    EXPECT_EQ(kept.pairs[i].dropped, expected.pairs[i].dropped);
  }
  EXPECT_FALSE(ledger.trials[1].measured.has_value());
  EXPECT_EQ(ledger.trials[1].verdict, TrialVerdict::kNotTried);
  EXPECT_EQ(ledger.trials[2].semantic_class, SemanticClass::kPrecision);
  EXPECT_EQ(printed(ledger), some_ledger());
}

// The form that other programs read: every line is JSON of its own, with these names.
TEST(Ledger, FormIsThatOfTheSchema) {
  std::istringstream lines(some_ledger());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line).at("schema"), "ridge.ledger/1");
  std::getline(lines, line);
  const auto trial = nlohmann::json::parse(line);
  EXPECT_EQ(trial.at("class"), "bit_identical");
  EXPECT_EQ(trial.at("predicted").at("lo"), 1.2);
  EXPECT_EQ(trial.at("measured").at("confidence"), 0.95);
  EXPECT_EQ(trial.at("pairs"), 13);
  EXPECT_EQ(trial.at("dropped"), 2);
  EXPECT_EQ(trial.at("blocks").at(1).at("order"), "BAAB");
  EXPECT_EQ(trial.at("blocks").at(0).at("seconds").size(), 4u);
}

// Worked out by hand: A takes 3 + 5 seconds, B 1 + 1.
TEST(Ledger, LogRatiosFollowTheOrderOfBlocks) {
  EXPECT_EQ(log_ratio_of({.before_outside = true, .seconds = {3, 1, 1, 5}}), std::log(4.0));
  EXPECT_EQ(log_ratio_of({.before_outside = false, .seconds = {3, 1, 1, 5}}), std::log(0.25));
}

TEST(Ledger, AWorkReadsBackAndIsInEveryRatio) {
  EXPECT_NEAR(
      log_ratio_of({.before_outside = true, .seconds = {3, 1, 1, 5}}, 0.5), std::log(2.0), 1e-12);
  TrialRecord trial = test::kept_trial(1);
  trial.block_steps = 41;
  trial.after_block_steps = 20;
  trial.work = 0.99;
  for (PairRecord& pair : trial.pairs) pair.log_ratio = log_ratio_of(pair, trial.work);
  test::finish(trial);
  const std::string text = to_json(test::some_run()) + to_json(trial);
  const Ledger ledger = parse_ledger(text, "l.jsonl");
  EXPECT_EQ(printed(ledger), text);
  EXPECT_EQ(ledger.trials[0].work, 0.99);
  EXPECT_EQ(ledger.trials[0].after_block_steps, 20);
  EXPECT_TRUE(refusal(replaced(text, "\"work\":0.99", "\"work\":0.98"))
                  .starts_with("l.jsonl:2: blocks[0]: log_ratio: "));
  EXPECT_TRUE(refusal(replaced(text, "\"work\":0.99", "\"work\":0"))
                  .starts_with("l.jsonl:2: work: 0 is not in"));
}

// Written before there was a work: blocks of both had the same steps.
TEST(Ledger, OldOnesStayReadable) {
  std::string text = some_ledger();
  for (const char* fields : {",\"after_block_steps\":20", ",\"after_block_steps\":0"})
    for (size_t at; (at = text.find(fields)) != std::string::npos;)
      text.erase(at, std::string(fields).size());
  for (size_t at; (at = text.find(",\"work\":1")) != std::string::npos;)
    text.erase(at, text.find_first_of(",}", at + 1) - at);
  EXPECT_EQ(text.find("work\""), std::string::npos);
  const Ledger ledger = parse_ledger(text, "l.jsonl");
  EXPECT_EQ(ledger.trials[0].work, 1);
  EXPECT_EQ(ledger.trials[0].after_block_steps, 20);
  EXPECT_EQ(printed(ledger), some_ledger());
}

TEST(Ledger, NamesReadBack) {
  for (int i = 0; i < 9; ++i) {
    const auto verdict = static_cast<TrialVerdict>(i);
    EXPECT_EQ(parse_name<TrialVerdict>(name_of(verdict)), verdict);
  }
  for (int i = 0; i < 4; ++i) {
    const auto semantic_class = static_cast<SemanticClass>(i);
    EXPECT_EQ(parse_name<SemanticClass>(name_of(semantic_class)), semantic_class);
  }
  EXPECT_EQ(parse_name<TrialVerdict>(""), std::nullopt);
}

TEST(Ledger, EveryLineIsInTheFileWhenTheCallReturns) {
  const test::TempFolder folder;
  const std::string path = folder / "ledger.jsonl";
  std::ofstream(path) << "what was there";
  LedgerWriter writer(path, test::some_run());
  EXPECT_EQ(read_ledger_file(path).trials.size(), 0u);
  writer.add(test::kept_trial(1));
  EXPECT_EQ(read_ledger_file(path).trials.size(), 1u);
  TrialRecord large = test::kept_trial(2);  // more than a buffer of the file
  large.pairs = test::some_pairs(2000, 0.1, 5);
  writer.add(large);
  const Ledger ledger = read_ledger_file(path);
  EXPECT_EQ(ledger.trials.size(), 2u);
  EXPECT_EQ(ledger.trials[1].pairs.size(), 2000u);
}

TEST(Ledger, WhatCouldNotBeReadIsNotWritten) {
  const test::TempFolder folder;
  const std::string path = folder / "ledger.jsonl";
  LedgerWriter writer(path, test::some_run());
  writer.add(test::kept_trial(2));
  EXPECT_THROW(writer.add(test::kept_trial(2)), InternalError);
  TrialRecord wrong = test::kept_trial(3);
  wrong.pairs[3].log_ratio += 0.01;
  EXPECT_THROW(writer.add(wrong), InternalError);
  wrong = test::kept_trial(3);
  wrong.pairs[3].seconds[0] = 0;
  EXPECT_THROW(writer.add(wrong), InternalError);
  wrong = test::kept_trial(3);
  wrong.measured->high = std::nan("");
  EXPECT_THROW(writer.add(wrong), InternalError);
  writer.add(test::kept_trial(3));
  EXPECT_EQ(read_ledger_file(path).trials.size(), 2u);
}

// A kill at any byte leaves all lines before it.
TEST(Ledger, CutAnywhereItKeepsTheWholeLines) {
  const std::string text = some_ledger();
  const size_t first = text.find('\n');
  for (size_t length = first + 1; length <= text.size(); length += 7) {
    const std::string part = text.substr(0, length);
    const Ledger ledger = parse_ledger(part, "l.jsonl");
    const auto lines = static_cast<size_t>(std::count(part.begin(), part.end(), '\n'));
    const bool is_whole = part.back() == '\n' || part.back() == '}';
    if (ledger.note.empty()) {
      EXPECT_TRUE(is_whole) << length;
    } else {
      EXPECT_EQ(ledger.trials.size(), lines - 1) << length;
      EXPECT_EQ(ledger.note,
                fmt::format("l.jsonl:{}: the last line is cut off; its {} bytes are left out",
                            lines + 1,
                            length - part.rfind('\n') - 1));
    }
    EXPECT_TRUE(text.starts_with(printed(ledger).substr(0, printed(ledger).size() - 1)));
  }
  EXPECT_NE(refusal(text.substr(0, first / 2)).find("l.jsonl:1: not valid JSON"),
            std::string::npos);
}

TEST(Ledger, DamageIsToldWithItsLine) {
  const std::string good = some_ledger();
  const auto with = [&](const std::string& what, const std::string& by) {
    return refusal(replaced(good, what, by));
  };
  EXPECT_EQ(refusal(""),
            "l.jsonl: the ledger is empty; give the ledger.jsonl of a run of ridge optimize");
  EXPECT_TRUE(refusal("{}\n").starts_with("l.jsonl:1: 'schema' is missing"));
  EXPECT_TRUE(refusal("\n").starts_with("l.jsonl:1: not valid JSON"));
  EXPECT_TRUE(with("ledger/1", "ledger/2").starts_with("l.jsonl:1: schema: 'ridge.ledger/2' is"));
  EXPECT_TRUE(with("\"number\":1,", "\"number\":0,").starts_with("l.jsonl:2: number: 0 is not in"));
  EXPECT_TRUE(
      with("\"number\":1,", "\"number\":2,").starts_with("l.jsonl:3: trial 2 comes after trial 2"));
  EXPECT_TRUE(with("\"number\":2,", "\"numbre\":2,").starts_with("l.jsonl:3: 'number' is missing"));
  EXPECT_TRUE(with("\"verdict\":\"kept\"", "\"verdict\":\"won\"")
                  .starts_with("l.jsonl:2: verdict: unknown 'won'"));
  EXPECT_TRUE(with("\"order\":\"ABBA\"", "\"order\":\"AABB\"")
                  .starts_with("l.jsonl:2: blocks[0]: order: neither ABBA nor BAAB"));
  EXPECT_TRUE(with("\"order\":\"ABBA\"", "\"order\":\"BAAB\"")
                  .starts_with("l.jsonl:2: blocks[0]: log_ratio: "));
  EXPECT_TRUE(with("\"dropped\":false", "\"dropped\":true")
                  .starts_with("l.jsonl:2: pairs and dropped are not"));
  EXPECT_TRUE(with("\"seconds\":[", "\"seconds\":[0,")
                  .starts_with("l.jsonl:2: blocks[0]: seconds: 5 blocks, not 4"));
  EXPECT_TRUE(with("\"lo\":1.2", "\"lo\":-1").starts_with("l.jsonl:2: predicted: lo: -1 is not"));
  EXPECT_TRUE(with("\"lo\":1.2", "\"lo\":null").starts_with("l.jsonl:2: predicted: lo: expected"));
  EXPECT_TRUE(with("\"accept_error\":0.05", "\"accept_error\":0").starts_with("l.jsonl:2: judge"));
  EXPECT_TRUE(with("{\"number\":2", "{\"a\":[[[[[[[1]]]]]]],\"number\":2")
                  .starts_with("l.jsonl:3: more than 6 levels"));
  EXPECT_TRUE(refusal(good + "{\"number\":9}\n").starts_with("l.jsonl:5: "));
  EXPECT_TRUE(
      refusal(good + std::string(5 << 20, ' ') + "\n").starts_with("l.jsonl:5: JSON text "));
  EXPECT_EQ(test::user_error([] { trial_of(parse_ledger(some_ledger(), "l"), 3); }),
            "the ledger has no trial 3; its trials are 1 to 4");
}

// Every byte changed in turn: a clear refusal, or a ledger that still prints and reads back.
TEST(Ledger, NoDamagedByteBreaksTheReader) {
  const std::string good = some_ledger();
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 + at % 255));
    try {
      const std::string text = printed(parse_ledger(bad, "l"));
      EXPECT_EQ(printed(parse_ledger(text, "again")), text) << at;
    } catch (const UserError&) {
      // refused
    }
  }
}

TEST(Ledger, TheVerdictIsMadeAgainFromThePairs) {
  const Ledger ledger = parse_ledger(some_ledger(), "l.jsonl");
  EXPECT_EQ(judge_again(ledger.trials[0]).verdict(), Verdict::kFaster);
  EXPECT_EQ(judge_again(ledger.trials[2]).verdict(), Verdict::kNotFaster);
  EXPECT_EQ(judge_again(ledger.trials[0]).log_ratios().size(), 13u);  // without those dropped
  EXPECT_GE(judge_again(ledger.trials[0]).log_capital_for(), std::log(20.0));
  EXPECT_LT(judge_again(ledger.trials[0]).log_capital_against(), 0);
}

// What a dropped step gained is no step of the recipe; another change of the same technique is.
TEST(Ledger, KeptStepsAreThoseThatStayed) {
  TrialRecord other = test::kept_trial(2), dropped = test::kept_trial(4);
  other.change = "loader.workers 2 -> 4";
  TrialRecord done = test::untried_trial(3);  // asked for, never timed
  done.verdict = TrialVerdict::kKept;
  TrialRecord proof = test::kept_trial(5);
  proof.technique = kProofTechnique;
  dropped.technique = std::string(kWithout) + "loader.workers";
  const std::vector<TrialRecord> stays = {test::kept_trial(1), other, done, dropped, proof};
  EXPECT_EQ(kept_steps(stays).size(), 2u);  // it was kept again
  std::vector<TrialRecord> trials = stays;
  trials[3].verdict = TrialVerdict::kDropped;
  const std::vector<const TrialRecord*> steps = kept_steps(trials);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]->number, 2);
  EXPECT_FALSE(is_of_technique(trials[3]));
  EXPECT_FALSE(is_of_technique(proof));
  EXPECT_TRUE(is_of_technique(other));
}

}  // namespace
}  // namespace ridge
