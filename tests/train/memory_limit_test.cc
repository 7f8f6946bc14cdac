// The memory limit: the micro-batch is solved for, and one micro-batch fewer would not have fitted.
#include "ridge/train/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/run/backends.h"
#include "ridge/run/program.h"
#include "tests/support/errors.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

TrainConfig wide_config() {
  TrainConfig config = small_config("mlp");
  config.model.mlp.hidden = {512, 512};
  config.data.samples = 2100;
  config.train.batch = 1024;
  config.train.eval_batch = 64;
  config.train.steps = 3;
  return config;
}

int64_t planned(const TrainConfig& config) {
  const Task task = open_task(config);
  const auto backend = make_backend("cpu");
  return compile_program(task.training->program(task.sizes), *backend, program_options(config, task))
      .plan.total_bytes();
}

TEST(MemoryLimit, TheFewestMicroBatchesThatFitAreTaken) {
  const auto backend = make_backend("cpu");
  int64_t last = 0;
  int solved = 0;
  for (const int64_t limit : {5, 7, 10, 14, 100}) {
    TrainConfig config = wide_config();
    config.train.memory_limit = limit;
    Task task = open_task(config);
    std::string text;
    try {
      text = apply_memory_limit(config, task, *backend);
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("one sample need"));
      EXPECT_EQ(last, 0) << "a larger limit must not fail where a smaller one was kept";
      continue;
    }
    const int64_t bytes = limit << 20;
    EXPECT_LE(planned(config), bytes);
    if (last > 0) {
      EXPECT_LE(config.train.micro, last);
    }
    last = config.train.micro;
    if (config.train.micro == 1) {
      EXPECT_EQ(text, "");
      continue;
    }
    ++solved;
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("{} micro-batches", config.train.micro)));
    config.train.micro -= 1;
    EXPECT_GT(planned(config), bytes) << "limit " << limit;
  }
  EXPECT_GE(solved, 2);
  EXPECT_EQ(last, 1);
}

TEST(MemoryLimit, ARunKeepsWithinItAndLearnsTheSame) {
  TrainConfig config = wide_config();
  Watch whole, limited;
  run_small(config, whole);
  config.train.memory_limit = 10;
  const TrainResult result = run_small(config, limited);
  EXPECT_THAT(limited.messages, testing::Contains(testing::HasSubstr("memory limit 10 MiB")));
  ASSERT_EQ(whole.losses.size(), limited.losses.size());
  for (size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(whole.losses[i], limited.losses[i], 1e-4);
  EXPECT_LT(result.memory.planned_bytes, int64_t{11} << 20);  // the loader's batches included
}

TEST(MemoryLimit, BatchNormIsNotTakenApart) {
  TrainConfig config = small_config("cnn");
  config.model.cnn.widths = {64, 64};
  config.train.memory_limit = 1;
  EXPECT_THAT(user_error([&] { run_small(config); }),
              testing::AllOf(testing::HasSubstr("would change what is computed"),
                             testing::HasSubstr("batch_norm"),
                             testing::HasSubstr("set a smaller train.batch")));
}

}  // namespace
}  // namespace ridge::test
