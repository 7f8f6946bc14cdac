// Batches that are copied ahead, on a device that is made up: the program computes the same
// whatever it does with its batches, and takes a copy only where it is what it would have made
// itself (tests/attach/ programs/knob_copies.py).
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/attach_torch/shimmed_program.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"

namespace ridge::attach {
namespace {

constexpr const char* kCopies = R"({"loader.to_device":true})";

class CopiesKnob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  }

  /// A program that prints the same with and without the knob.
  test::ShimmedEnd same(const std::string& mode) const {
    SCOPED_TRACE(mode);
    const test::ShimmedEnd alone = test::run_shimmed(python_, "knob_copies.py " + mode);
    const test::ShimmedEnd ended =
        test::run_with_recipe(python_, kCopies, "knob_copies.py " + mode);
    EXPECT_GT(alone.out.size(), 300u);
    EXPECT_EQ(ended.out, alone.out);
    return ended;
  }
  /// Expects that copies were applied, and what stderr tells of them.
  void expect_served(const std::string& mode, const std::string& told) const {
    const test::ShimmedEnd ended = same(mode);
    EXPECT_EQ(ended.knob().state, "applied") << mode << ": " << ended.knob().text;
    EXPECT_EQ(ended.err, "served " + told + "\n") << mode;
  }

  std::string python_ = test::peers_python();
};

constexpr const char* kBoth = "32 ['copy', 'copy', 'hand over', 'hand over']";
// One of the two tensors of a batch.
constexpr const char* kOne = "16 ['copy', 'copy', 'hand over', 'copy']";

TEST_F(CopiesKnob, TheProgramComputesTheSame) {
  expect_served("mutated", kOne);
  for (const char* mode : {"plain", "dict", "kept", "workers", "ended"}) expect_served(mode, kBoth);
  for (const char* mode : {"viewed", "numpy", "dtype"}) expect_served(mode, kOne);
  expect_served("left", "16 ['copy', 'copy', 'hand over', 'hand over']");
  // Pinned memory is read where it lies, so a copy that the program waits for is waited for.
  expect_served("pinned", "32 ['copy', 'copy', 'hand over and wait', 'hand over']");
}

TEST_F(CopiesKnob, WhatCannotBeCopiedStaysAsItIs) {
  EXPECT_EQ(same("absent").knob().text, "the program does not use CUDA");
  EXPECT_EQ(same("failing").knob().text, "it failed: out of memory");
}

TEST_F(CopiesKnob, IsOfferedWhereBatchesAreMovedWhole) {
  const test::ShimmedEnd ended = test::run_shimmed(
      python_, "knob_copies.py probe", ShimOptions{.profiled_steps = 0, .probes = true});
  std::map<std::string, std::string> found;
  std::istringstream lines(ended.out);
  for (std::string word, name, rest; lines >> word && std::getline(lines, rest);)
    if (word == "offer") found[rest.substr(1, rest.find(' ', 1) - 1)] = rest;
  const std::string refused =
      " refused: the program does not move its batches whole, by .to() or .cuda()";
  const std::map<std::string, std::string> expected = {
      {"whole", " whole true"}, {"half", " half" + refused}, {"none", " none" + refused}};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace ridge::attach
