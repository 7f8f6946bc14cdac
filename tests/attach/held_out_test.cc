// The watch of the losses that a program computes without gradients, without torch
// (programs/held_out.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "ridge/attach/shim.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

/// The facts of the one program.
ProcessFacts evaluated(const std::string& mode) {
  const ShimFolder shim({.profiled_steps = 0, .watches_losses = true});
  const test::TempFolder folder;
  std::string command = "cd '" + folder.path().string() + "' && exec env";
  for (const auto& [name, value] : shim.environment()) command += " '" + name + "=" + value + "'";
  command += " timeout -k 1 280 python3 '" +
             std::filesystem::absolute("tests/attach/programs/held_out.py").string() + "' " + mode;
  EXPECT_EQ(std::system(command.c_str()), 0) << mode;
  const std::vector<ProcessFacts> all = shim.facts();
  EXPECT_EQ(all.size(), 1u) << mode;
  return all.empty() ? ProcessFacts{} : all.front();
}

class HeldOut : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  }
};

TEST_F(HeldOut, AnEvaluationIsTheMeanOverItsSamples) {
  const ProcessFacts facts = evaluated("sometimes");
  EXPECT_TRUE(facts.notes.empty()) << facts.notes.front();
  EXPECT_EQ(facts.evaluated, 2);
  ASSERT_EQ(facts.evaluations.size(), 2u);
  EXPECT_EQ(facts.evaluations[0].step, 3);
  EXPECT_EQ(facts.evaluations[0].loss, "2.0");  // 30 samples of 1, 10 of 5
  EXPECT_EQ(facts.evaluations[0].samples, 40);
  EXPECT_FALSE(facts.evaluations[0].is_open);
  // No step came behind the last one.
  EXPECT_EQ(facts.evaluations[1].step, 6);
  EXPECT_EQ(facts.evaluations[1].loss, "2.0");
  EXPECT_TRUE(facts.evaluations[1].is_open);
}

TEST_F(HeldOut, TrainingIsNoEvaluation) {
  const ProcessFacts facts = evaluated("never");
  EXPECT_EQ(facts.evaluated, 0);
  EXPECT_TRUE(facts.evaluations.empty());
}

TEST_F(HeldOut, OfManyTheLastAreKeptAndAllAreCounted) {
  const ProcessFacts facts = evaluated("often");
  EXPECT_EQ(facts.evaluated, 60);
  ASSERT_EQ(facts.evaluations.size(), 51u);
  EXPECT_EQ(facts.evaluations.front().step, 10);
  EXPECT_EQ(facts.evaluations.back().step, 60);
}

TEST_F(HeldOut, ALossThatIsNotFiniteStays) {
  EXPECT_EQ(evaluated("infinite").evaluations.at(0).loss, "inf");
}

}  // namespace
}  // namespace ridge::attach
