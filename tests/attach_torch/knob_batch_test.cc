// Larger batches of a real program: the bits are those that somebody who set batch, rate and means
// by hand gets, and the program sees its own numbers (tests/attach/programs/knob_batch.py).
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <tuple>

#include "tests/attach_torch/shimmed_program.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"

namespace ridge::attach {
namespace {

using Ended = test::ShimmedEnd;

class BatchKnob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  }

  Ended run(const std::string& words) const {
    return test::run_shimmed(python_, "knob_batch.py " + words);
  }
  Ended with(int batch, const std::string& words) const {
    return test::run_with_recipe(
        python_, fmt::format("{{\"loader.batch\":{}}}", batch), "knob_batch.py " + words);
  }

  void expect_as_by_hand(const std::string& optimizer, int factor) const {
    SCOPED_TRACE(optimizer);
    const Ended by_hand = run(fmt::format("train {} 16 {}", optimizer, factor));
    const Ended ended = with(16 * factor, fmt::format("train {} 16 1", optimizer));
    EXPECT_GT(by_hand.out.size(), 300u);
    EXPECT_EQ(ended.out, by_hand.out);
    EXPECT_EQ(ended.knob().state, "applied") << ended.knob().text;
    EXPECT_EQ(ended.knob().work, factor);
    // The program and its checkpoints see what the program set.
    const Ended alone = run(fmt::format("train {} 16 1", optimizer));
    EXPECT_EQ(ended.err, alone.err);
    EXPECT_NE(alone.out, ended.out);
  }

  std::string python_ = test::peers_python();
};

TEST_F(BatchKnob, BitsAreThoseOfTheNumbersSetByHand) {
  expect_as_by_hand("AdamW", 2);
  for (const char* optimizer : {"SGD", "Adam", "NAdam", "RMSprop"}) expect_as_by_hand(optimizer, 4);
}

// The program that is written by hand takes the gradient of the mean of the losses.
TEST_F(BatchKnob, AnUpdateForSeveralStepsIsThatOfTheMeanOfTheirLosses) {
  for (const auto& [mode, optimizer, number] : {std::tuple("several", "AdamW", 2),
                                                std::tuple("several-cleared", "SGD", 2),
                                                std::tuple("several", "RMSprop", 2)}) {
    const std::string words = fmt::format("knob_batch.py {} {} 16 ", mode, optimizer);
    const Ended by_hand = test::run_shimmed(python_, words + std::to_string(number));
    const Ended ended = test::run_with_recipe(
        python_, fmt::format("{{\"optimizer.accumulate\":{}}}", number), words + "1");
    EXPECT_GT(by_hand.out.size(), 300u);
    EXPECT_EQ(ended.out, by_hand.out) << words;
    EXPECT_EQ(ended.knob().text, fmt::format("{} updates once for {} steps", optimizer, number));
    EXPECT_EQ(ended.knob().work, 1);
  }
}

TEST_F(BatchKnob, WhatItCannotFollowStaysAsItIs) {
  const Ended odd = with(40, "train SGD 16 1");
  EXPECT_EQ(odd.out, run("train SGD 16 1").out);
  EXPECT_EQ(odd.knob().state, "waiting");
  EXPECT_NE(odd.knob().text.find("no multiple of its batch of 16"), std::string::npos);
  const Ended unknown = with(32, "train Rprop 16 1");
  EXPECT_EQ(unknown.knob().state, "refused");
  EXPECT_EQ(unknown.knob().text, "no rule says how the learning rate of Rprop follows the batch");
  EXPECT_NE(unknown.out.find("length 60 16 4 16\n"), std::string::npos) << unknown.out;
}

TEST_F(BatchKnob, IsOfferedWhereTheRuleHolds) {
  const Ended ended = test::run_shimmed(
      python_, "knob_batch.py probe", ShimOptions{.profiled_steps = 0, .probes = true});
  std::map<std::string, std::string> found;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(' ');
    std::string& told = found[line.substr(0, at)];
    told += (told.empty() ? "" : ", ") + line.substr(at + 1);
  }
  const std::string memory = found["memory"];
  EXPECT_TRUE(memory.starts_with("refused: 2 times the batch may take ")) << memory;
  found.erase("memory");
  const std::string no_rule = "refused: no rule says how the learning rate of ";
  const std::map<std::string, std::string> expected = {
      {"rows", "4 2, 8 4"},
      {"held_out", "4 2, 8 4"},
      {"few", "4 2"},
      {"fewer", "refused: 2 times the batch would leave 75 steps an epoch, fewer than 100"},
      {"ordered",
       "refused: the loader does not shuffle: it is not told from those of held-out samples"},
      {"pairs", "refused: the program makes its batches itself"},
      {"two", "refused: several loaders feed the steps"},
      {"other", "refused: a loader that does not feed the steps shuffles, too"},
      {"none", "refused: no DataLoader feeds the steps"},
      {"Rprop", no_rule + "Rprop follows the batch"},
      {"OwnSgd", no_rule + "OwnSgd follows the batch"}};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace ridge::attach
