// The memory limit: the micro-batch is solved for, and one micro-batch fewer would not have fitted.
#include "ridge/train/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/run/backends.h"
#include "ridge/run/program.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
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

TrainConfig deep_config() {
  TrainConfig config = small_config("gpt");
  config.model.gpt = {
      .vocab = 11, .context = 64, .layers = 2, .heads = 2, .width = 64, .dropout = 0.1};
  config.data.shape = {64};
  config.train.batch = 8;
  config.train.steps = 3;
  return config;
}

// Models whose plans are as large with fewer samples a step: fewer numbers of micro-batches to
// weigh. Planning alone takes no longer for large sizes.
TrainConfig quick_config(const std::string& kind) {
  TrainConfig config = small_config(kind);
  config.train.batch = 8;
  config.model.mlp.hidden = {1 << 18};
  config.model.mlp.outputs = 2;
  config.model.gpt = {
      .vocab = 11, .context = 1024, .layers = 1, .heads = 2, .width = 64, .dropout = 0.0};
  config.data.shape = {kind == "mlp" ? 1 : 1024};
  config.data.classes = 2;
  config.train.drop_last = true;
  return config;
}

bool in_full() { return cases(1) > 1; }
bool in_short() { return cases(2) < 2; }

int64_t planned(const TrainConfig& config) {
  const Task task = open_task(config);
  const auto backend = make_backend("cpu");
  return compile_program(
             task.training->program(task.sizes), *backend, program_options(config, task))
      .plan.total_bytes();
}

// A series of limits from what the plan needs as it is down to what nothing can keep.
TEST(MemoryLimit, ASmallerLimitNeverGivesALargerPlan) {
  const auto backend = make_backend("cpu");
  for (const std::string kind : {"mlp", "gpt"}) {
    if (in_short() && kind == "gpt") continue;
    TrainConfig config = !in_full()      ? quick_config(kind)
                         : kind == "mlp" ? wide_config()
                                         : deep_config();
    config.data.eval_fraction = 0.0;
    const int64_t whole = planned(config) >> 20;
    int64_t last = planned(config);
    int failed = 0, in_parts = 0, again = 0;
    for (int64_t i = 0; i < 12; ++i) {
      TrainConfig limited = config;
      limited.train.memory_limit = std::max<int64_t>(1, whole * (12 - i) / 12);
      Task task = open_task(limited);
      std::string text;
      try {
        text = apply_memory_limit(limited, task, *backend);
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(),
                    testing::AllOf(testing::HasSubstr("less than the least plan"),
                                   testing::HasSubstr("most is held by: state")));
        ++failed;
        continue;
      }
      EXPECT_EQ(failed, 0) << "a smaller limit was kept where a larger one was not";
      const int64_t bytes = planned(limited);
      EXPECT_LE(bytes, limited.train.memory_limit << 20) << text;
      EXPECT_LE(bytes, last) << text;
      last = bytes;
      if (text.find("micro-batches") != std::string::npos) ++in_parts;
      if (text.find("recomputed") != std::string::npos) ++again;
    }
    EXPECT_GE(in_parts + again, 4) << kind;
    EXPECT_GE(failed, kind == "mlp" ? 1 : 0) << kind;
  }
}

TEST(MemoryLimit, TheLargestMicroBatchRunsAndOneMoreIsRefused) {
  const auto backend = make_backend("cpu");
  TrainConfig config = wide_config();
  const int64_t limit = int64_t{12} << 20;
  const MicroBatch found = largest_micro_batch(config, open_task(config), *backend, limit);
  ASSERT_GE(found.samples, 2);
  EXPECT_LE(found.bytes, limit);
  EXPECT_GT(found.next_bytes, limit);
  for (const int64_t samples : {found.samples, found.samples + 1}) {
    config.train.batch = 2 * samples;
    config.train.micro = 2;
    config.train.eval_batch = samples;
    config.data.samples = 2 * config.train.batch;
    config.data.eval_fraction = 0.5;
    const int64_t bytes = planned(config);
    EXPECT_EQ(bytes, samples == found.samples ? found.bytes : found.next_bytes);
    // One more is refused by the plan alone: nothing has run, or taken memory, when that is known.
    TrainConfig limited = config;
    limited.train.memory_limit = limit >> 20;
    Task task = open_task(limited);
    const std::string text = apply_memory_limit(limited, task, *backend);
    if (samples == found.samples)
      EXPECT_EQ(text, "");
    else
      EXPECT_THAT(text, testing::HasSubstr("memory limit 12 MiB: "));
    if (samples > found.samples) continue;
    EXPECT_EQ(run_small(config).steps, 3);
  }
}

TEST(MemoryLimit, ResultsMadeAgainKeepEveryBit) {
  TrainConfig config = small_config("cnn");  // its batch norm forbids micro-batches
  config.model.cnn.widths = {16, 16};
  config.data.shape = {16, 16, 3};
  config.data.eval_fraction = 0.0;
  config.train.batch = 32;
  config.train.drop_last = true;
  config.train.steps = 2;
  const TrainResult whole = run_small(config);
  config.train.memory_limit = (planned(config) - 1) >> 20;
  Watch watch;
  const TrainResult limited = run_small(config, watch);
  EXPECT_THAT(watch.messages, testing::Contains(testing::HasSubstr("recomputed results")));
  EXPECT_EQ(limited.state_hash, whole.state_hash);
  EXPECT_LT(limited.memory.planned_bytes, whole.memory.planned_bytes);
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

// If logits are most of a plan, a loss in parts costs less than anything else.
TEST(MemoryLimit, ALossInPartsFreesTheLogits) {
  TrainConfig config = small_config("gpt");
  config.model.gpt = {
      .vocab = 2048, .context = 32, .layers = 1, .heads = 2, .width = 8, .dropout = 0.1};
  config.data.shape = {32};
  config.data.classes = 2048;
  config.train.steps = 3;
  const int64_t logits = int64_t{16} * 32 * 2048 * 4, whole = planned(config);
  ASSERT_GE(whole, logits);
  Watch plain;
  run_small(config, plain);
  config.train.memory_limit = (whole - logits / 2) >> 20;
  Watch limited;
  const TrainResult result = run_small(config, limited);
  EXPECT_THAT(limited.messages,
              testing::Contains(testing::AllOf(testing::HasSubstr("the loss in "),
                                               testing::Not(testing::HasSubstr("micro")),
                                               testing::Not(testing::HasSubstr("again")))));
  EXPECT_LT(result.memory.planned_bytes, whole - logits / 4);
  ASSERT_EQ(plain.losses.size(), limited.losses.size());
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(plain.losses[i], limited.losses[i], 1e-5);
  // Asked for, they are the least that there are.
  config.train.loss_chunks = 64;
  const Task task = open_task(config);
  EXPECT_EQ(program_options(config, task).passes.loss_chunks, 64);
  config.train.memory_limit = 0;
  EXPECT_LT(planned(config), whole - 2 * logits / 3);
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
