// The watch of a program's own batches, without torch (programs/watched_batches.py): whether its
// samples draw random numbers, and what a batch takes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "ridge/attach/shim.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

/// The facts of the one program; without any step.
ProcessFacts watched(const std::string& mode) {
  const ShimFolder shim({.profiled_steps = 0, .watches_batches = true});
  const test::TempFolder folder;
  std::string command = "cd '" + folder.path().string() + "' && exec env";
  for (const auto& [name, value] : shim.environment()) command += " '" + name + "=" + value + "'";
  command += " timeout -k 1 280 python3 '" +
             std::filesystem::absolute("tests/attach/programs/watched_batches.py").string() + "' " +
             mode;
  EXPECT_EQ(std::system(command.c_str()), 0) << mode;
  const std::vector<ProcessFacts> all = shim.facts();
  EXPECT_EQ(all.size(), 1u) << mode;
  return all.empty() ? ProcessFacts{} : all.front();
}

class WatchedBatches : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  }
};

TEST_F(WatchedBatches, SayWhatOtherWorkersWouldDo) {
  const auto expect =
      [](const std::string& mode, SemanticClass workers_class, const std::string& reason) {
        const ProcessFacts facts = watched(mode);
        EXPECT_EQ(facts.batches.workers_class, workers_class) << mode;
        EXPECT_EQ(facts.batches.reason, reason) << mode;
        EXPECT_TRUE(facts.notes.empty()) << facts.notes.front();
      };
  expect("plain", SemanticClass::kBitIdentical, "");
  expect("layout", SemanticClass::kReassociation, "workers lay batches out otherwise");
  expect("common", SemanticClass::kTrajectory, "samples draw random numbers (random)");
  expect("own", SemanticClass::kTrajectory, "samples draw random numbers (a generator of its own)");
  expect("iterable", SemanticClass::kTrajectory, "workers take turns, so the order is another");
}

// The sixteenth batch is among those that are inspected.
TEST_F(WatchedBatches, ALaterBatchCountsToo) {
  EXPECT_EQ(watched("rarely").batches.workers_class, SemanticClass::kTrajectory);
}

TEST_F(WatchedBatches, AnEvaluationThatDrawsIsNotTheTraining) {
  EXPECT_EQ(watched("evaluation").batches.workers_class, SemanticClass::kBitIdentical);
}

TEST_F(WatchedBatches, AWorkersBatchesAreThoseOfItsProgram) {
  const ProcessFacts facts = watched("worker");
  EXPECT_EQ(facts.batches.workers_class, SemanticClass::kTrajectory);
  EXPECT_EQ(facts.batches.reason, "samples draw random numbers (a generator of its own)");
  EXPECT_EQ(facts.batches.bytes, 3 * 10 * 4);
  EXPECT_GT(facts.batches.seconds, 0);
}

}  // namespace
}  // namespace ridge::attach
