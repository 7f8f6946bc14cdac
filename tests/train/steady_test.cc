// Nothing that runs at every step of training allocates memory.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "ridge/base/cpu/parallel.h"
#include "ridge/train/metrics.h"
#include "ridge/train/tensorboard.h"
#include "tests/support/count_allocations.h"
#include "tests/support/temp_folder.h"
#include "tests/train/example_inputs.h"
#include "tests/train/train_runs.h"

namespace ridge {
namespace {

/// Waits until all threads that compute have begun. A thread allocates then, and on a busy machine
/// a new one may begin behind the first steps.
void start_threads() {
  const int threads = num_threads();
  std::atomic<int> begun{0};
  parallel_for(threads, 1, [&](int64_t, int64_t) {
    ++begun;
    while (begun < threads) std::this_thread::yield();
  });
}

TEST(Steady, MetricsAllocateNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns malloc";
  const test::TempFolder folder;
  MetricsWriter metrics(folder / "metrics.jsonl", 0);
  TensorBoardWriter board(folder.path(), 0);
  const int64_t before = test::allocations;
  for (int64_t i = 1; i <= 2000; ++i) {  // enough to flush several times
    const StepReport step{i, 2000, 0.1, 1.0 / static_cast<double>(i), 0.3, 1e-3, 1.7, 1e5};
    const EvalReport eval{i, 0.1, 0.9, 100, 0.5};
    metrics.write(step);
    metrics.write(eval);
    board.write(step);
    board.write(eval);
  }
  EXPECT_EQ(test::allocations, before);
}

class SteadyExample : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All,
                         SteadyExample,
                         ::testing::ValuesIn(test::kExamples),
                         [](const auto& example) { return example.param; });

// With loader, metrics and all, as the front door runs it.
TEST_P(SteadyExample, StepsAllocateNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns malloc";
  start_threads();
  const test::ExampleInputs inputs(GetParam());
  if (!inputs.missing().empty()) GTEST_SKIP() << inputs.missing();
  TrainRequest request;
  request.config = inputs.config(
      {"train.steps=50", "train.batch=8", "train.eval_every=1000", "checkpoint.every=0"});
  // libjpeg allocates for every picture, in the loader's threads.
  const bool own_only = GetParam() == "jpeg_folder";
  int64_t before = -1, after = -1;
  test::Watch watch;
  watch.step = [&](const StepReport& report) {
    const int64_t now = own_only ? test::own_allocations : test::allocations.load();
    if (report.step == 4) before = now;
    if (report.step == 50) after = now;
  };
  train(request, watch);
  ASSERT_GE(before, 1);  // setting up allocates, so the count is alive
  EXPECT_EQ(after - before, 0);
}

// Every kind of model, whole batches and parts of them.
class SteadyModel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         SteadyModel,
                         ::testing::Values("mlp", "cnn", "gpt", "resnet18", "mobilenetv2"),
                         [](const auto& kind) { return kind.param; });

TEST_P(SteadyModel, StepsAllocateNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns malloc";
  start_threads();
  TrainConfig config = test::small_config(GetParam());
  const bool is_separable = GetParam() == "mlp" || GetParam() == "gpt";
  config.model.resnet18 = {.outputs = 4, .width = 16};
  config.model.mobilenetv2 = {.outputs = 4, .multiplier = 0.25};
  if (!is_separable) config.data.shape = {32, 32, 3};
  config.data.eval_fraction = 0.0;
  config.train.batch = 4;
  config.train.steps = 12;
  config.train.loss_scale = 1 << 20;  // the first steps in fp16 are skipped
  for (const auto& [micro, precision] :
       {std::pair{1, Precision::kF32}, {2, Precision::kF32}, {2, Precision::kFp16}}) {
    if (micro > 1 && !is_separable) continue;
    config.train.micro = micro;
    config.train.precision = precision;
    int64_t before = -1, after = -1;
    test::Watch watch;
    watch.step = [&](const StepReport& report) {
      if (report.step == 4) before = test::allocations;
      if (report.step == 12) after = test::allocations;
    };
    test::run_small(config, watch);
    ASSERT_GE(before, 1);
    EXPECT_EQ(after - before, 0) << micro << " micro-batches in " << name_of(precision);
  }
}

// Batches of all lengths, each through entries of its own.
TEST(Steady, RaggedBatchesAllocateNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns malloc";
  start_threads();
  const test::TempFolder folder;
  std::ofstream text(folder / "text");
  for (size_t i = 0; i < 100; ++i) text << std::string(1 + i * 7 % 30, 'a') << '\n';
  text.close();
  TrainConfig config = test::small_config("gpt");
  config.model.gpt.vocab = 256;
  config.model.gpt.context = 32;
  config.model.gpt.dropout = 0;
  config.data = {.kind = data::DataKind::kText,
                 .path = (folder / "text").string(),
                 .context = 32,
                 .text_samples = data::TextSamples::kLines};
  config.loader.pad = data::Padding::kLongest;
  config.train.batch = 2;
  config.train.steps = 90;
  config.train.eval_every = 1000;
  for (const int64_t micro : {1, 2}) {
    config.train.micro = micro;
    int64_t before = -1, after = -1;
    test::Watch watch;
    watch.step = [&](const StepReport& report) {
      if (report.step == 4) before = test::allocations;
      if (report.step == 89) after = test::allocations;
    };
    test::run_small(config, watch);
    ASSERT_GE(before, 1);
    EXPECT_EQ(after - before, 0) << micro << " micro-batches";
  }
}

}  // namespace
}  // namespace ridge
