// Training in 16 bits on a device that keeps them in memory, made of the CPU backend: the losses of
// the CPU's own 16 bits, skipped steps, limited memory, and what the activations take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/nn/loss_scale.h"
#include "ridge/train/training_run.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

struct Ended {
  std::vector<double> losses;
  std::string hash;
};

Ended train_on(Backend& backend, const TrainConfig& config, int64_t memory_limit = 0) {
  const Task task = open_task(config);
  data::Loader loader(
      *task.train_data, batch_plan(config), config.loader, {}, batch_memory(backend));
  ProgramOptions options = program_options(config, task);
  options.memory_limit = memory_limit;
  TrainingRun run(task, config, backend, options);
  Ended ended;
  for (int64_t step = 0; step < config.train.steps; ++step)
    ended.losses.push_back(run.train_step(loader.next(), step, config.train.steps).loss);
  ended.hash = run.state_hash();
  return ended;
}

LazyOptions storing() { return {.stores_16_bits = true}; }

// The CPU rounds what products read, the device what they make too.
TEST(TrainStored, LossesAreThoseOfTheCpu) {
  const auto cpu = make_cpu_backend();
  const std::pair<Precision, double> precisions[] = {{Precision::kBf16, 0x1p-8},
                                                     {Precision::kFp16, 0x1p-11}};
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    TrainConfig config = small_config(model);
    config.train.steps = 12;
    const Ended f32 = train_on(*cpu, config);
    for (const auto& [precision, roundoff] : precisions) {
      SCOPED_TRACE(fmt::format("{} in {}", model, name_of(precision)));
      config.train.precision = precision;
      LazyBackend device(storing());
      const Ended want = train_on(*cpu, config), got = train_on(device, config);
      double rounding = 0;
      for (size_t i = 0; i < want.losses.size(); ++i) {
        EXPECT_NEAR(got.losses[i], want.losses[i], 4 * roundoff * want.losses[i]) << i;
        rounding = std::max(rounding, std::fabs(got.losses[i] - f32.losses[i]));
      }
      EXPECT_NE(got.hash, want.hash);
      EXPECT_GT(rounding, 1e-6);
    }
  }
}

TEST(TrainStored, MicroBatchesAddUp) {
  TrainConfig config = small_config("gpt");
  config.train.precision = Precision::kBf16;
  config.train.steps = 6;
  LazyBackend device(storing());
  const Ended whole = train_on(device, config);
  config.train.micro = 2;
  const Ended parts = train_on(device, config);
  for (size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(parts.losses[i], whole.losses[i], 0x1p-8 * whole.losses[i]) << i;
}

// The numbers of fp16_test.cc: 2e4 times the scale must not reach 65520.
TEST(TrainStored, OverflowsSkipTheirSteps) {
  TempFolder folder;
  const auto path = folder / "rows.csv";
  {
    std::ofstream file(path);
    file << "a,b,target\n";
    for (int i = 0; i < 96; ++i)
      file << fmt::format(
          "{:.6f},{:.6f},{:.6f}\n", std::sin(3.0 * i), std::cos(7.0 * i), i % 2 == 0 ? 1e4 : -1e4);
  }
  TrainConfig config;
  config.model.mlp = {.hidden = {12}, .outputs = 1};
  config.data.kind = data::DataKind::kTable;
  config.data.path = path.string();
  config.data.target = "target";
  config.data.task = data::TableTask::kRegress;
  config.optimizer.lr = 0.01;
  config.train.seed = 5;
  config.train.batch = 16;
  config.train.steps = 20;
  config.train.precision = Precision::kFp16;
  const Task task = open_task(config);
  data::Loader loader(*task.train_data, batch_plan(config), config.loader);
  LazyBackend device(storing());
  TrainingRun run(task, config, device, program_options(config, task));
  const auto parameters_moved = [&] {
    for (const nn::ParameterSpec& spec : task.training->parameters())
      if (!run.program().state().read(spec.name).same_bits(nn::initial_value(spec, 5))) return true;
    return false;
  };
  for (int64_t step = 0; step < config.train.steps; ++step) {
    const StepResult result = run.train_step(loader.next(), step, config.train.steps);
    const int64_t skipped = std::min<int64_t>(step + 1, 15);
    EXPECT_EQ(result.skipped, step < 15) << step;
    EXPECT_EQ(run.skipped_steps(), skipped);
    EXPECT_EQ(run.loss_scale(), std::ldexp(65536.0, -static_cast<int>(skipped)));
    EXPECT_EQ(parameters_moved(), step >= 15) << step;
    EXPECT_TRUE(std::isfinite(result.loss));
  }
}

TrainConfig deep_gpt(int64_t layers) {
  TrainConfig config = small_config("gpt");
  config.model.gpt = {.vocab = 64, .context = 64, .layers = layers, .heads = 2, .width = 64};
  config.data.shape = {64};
  config.data.classes = 64;
  config.train.batch = 16;
  config.train.drop_last = true;
  config.train.steps = 2;
  config.train.precision = Precision::kBf16;
  return config;
}

int64_t arena_of(Backend& backend, const TrainConfig& config) {
  const Task task = open_task(config);
  ProgramGraphs graphs = task.training->program(task.sizes);
  return compile_program(std::move(graphs), backend, program_options(config, task))
      .plan.arena_bytes;
}

// A layer keeps for each token and channel in backward: two f32 of the stream, and in bf16 both
// normalised inputs, q, k, v, the results of attention, and the inputs and results of the MLP's
// activation: 2 * 4 + 2 * (1 + 1 + 3 + 1 + 4 + 4) = 36 bytes. Besides, the casts of its 12 C^2
// weights; and for each token the logsumexps of two heads and two numbers of each norm, in f32.
TEST(TrainStored, ALayerKeepsNoMoreThanAutocastDoes) {
  LazyBackend device(storing());
  const auto cpu = make_cpu_backend();
  const double elements = 16.0 * 64 * 64;
  const auto a_layer = [&](Backend& backend, const TrainConfig& few, const TrainConfig& many) {
    const int64_t more = arena_of(backend, many) - arena_of(backend, few);
    return static_cast<double>(more) /
           static_cast<double>(many.model.gpt.layers - few.model.gpt.layers) / elements;
  };
  TrainConfig few = deep_gpt(4), many = deep_gpt(8);
  EXPECT_LE(a_layer(device, few, many), 36 + 2 * 12 * 64 * 64 / elements + 4.0 * (2 + 2 * 2) / 64);
  EXPECT_GE(a_layer(*cpu, few, many), 50.0);
}

TEST(TrainStored, MemoryIsLimitedWithTheSameBits) {
  const TrainConfig config = deep_gpt(4);
  LazyBackend device(storing());
  const Task task = open_task(config);
  const auto planned = [&](int64_t limit) {
    ProgramOptions options = program_options(config, task);
    options.memory_limit = limit;
    return compile_program(task.training->program(task.sizes), device, options).plan.total_bytes();
  };
  const int64_t whole = planned(0), limit = whole * 4 / 5;
  EXPECT_LE(planned(limit), limit);
  EXPECT_EQ(train_on(device, config, limit).hash, train_on(device, config).hash);
}

}  // namespace
}  // namespace ridge::test
