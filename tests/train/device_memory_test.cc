// The fewest micro-batches that fit into free memory, against all numbers of micro-batches.
#include "ridge/train/device_memory.h"

#include <gtest/gtest.h>

#include "ridge/run/backends.h"
#include "ridge/train/memory_limit.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

int64_t planned(TrainConfig config, int64_t micro) {
  config.train.micro = micro;
  const Task task = open_task(config);
  const auto backend = make_backend("cpu");
  return compile_program(
             task.training->program(task.sizes), *backend, program_options(config, task))
      .plan.total_bytes();
}

TEST(DeviceMemory, TheFewestPartsThatHaveRoom) {
  TrainConfig config = small_config("mlp");
  config.model.mlp.hidden = {64};
  config.data.samples = 8000;
  config.train.batch = 4096;
  config.train.eval_batch = 16;
  config.train.micro = 8;  // it does not matter
  const Task task = open_task(config);
  const auto backend = make_backend("cpu");
  std::vector<int64_t> bytes;
  for (int64_t micro = 1; micro <= 16; ++micro) bytes.push_back(planned(config, micro));
  ASSERT_GT(bytes.front(), 2 * bytes.back());
  for (int64_t limit = bytes.back(); limit < bytes.front() + (1 << 20); limit += 1 << 17) {
    // Limits are kept in whole MiB.
    const int64_t kept = std::max<int64_t>(1, limit >> 20) << 20;
    int64_t fewest = 0;
    for (size_t i = bytes.size(); i-- > 0;)
      if (bytes[i] <= kept) fewest = static_cast<int64_t>(i) + 1;
    if (fewest == 0) continue;
    EXPECT_EQ(fewest_micro_batches(config, task, *backend, limit), fewest) << limit;
  }
}

// The mean over a batch is not that of its parts.
TEST(DeviceMemory, ABatchNormLeavesTheBatchWhole) {
  const TrainConfig config = small_config("cnn");
  const Task task = open_task(config);
  const auto backend = make_backend("cpu");
  EXPECT_FALSE(can_use_micro_batches(config, task));
  EXPECT_EQ(fewest_micro_batches(config, task, *backend, int64_t{1} << 30), 1);
}

TEST(DeviceMemory, SomeOfWhatIsFreeStaysFree) {
  EXPECT_EQ(memory_for_plan(int64_t{100} << 20), int64_t{98} << 20);
  EXPECT_EQ(memory_for_plan(int64_t{10} << 20), int64_t{9} << 20);
  EXPECT_EQ(memory_for_plan(1000), 0);
}

// The host's memory is not checked: the operating system reports what it lacks.
TEST(DeviceMemory, TheHostHasNoneOfItsOwn) {
  EXPECT_EQ(free_device_memory("cpu"), std::nullopt);
  EXPECT_EQ(free_device_memory("ref"), std::nullopt);
  const TrainConfig config = small_config("mlp");
  const Task task = open_task(config);
  const auto backend = make_backend("cpu");
  Plan plan;
  plan.arena_bytes = int64_t{1} << 50;
  EXPECT_NO_THROW(check_device_memory(config, task, *backend, plan));
}

}  // namespace
}  // namespace ridge::test
