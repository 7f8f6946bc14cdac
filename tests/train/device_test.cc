// Training on a device that runs beside the host: the bits of the CPU, no wait in a steady step,
// and no memory of the device touched from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/data/kept_batch.h"
#include "ridge/train/training_run.h"
#include "tests/support/errors.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/scale.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

using Schedule = LazyOptions::Schedule;

struct Ended {
  std::string hash;
  std::vector<double> numbers;
  bool operator==(const Ended&) const = default;
  void add(std::initializer_list<double> more) {
    for (const double each : more) numbers.push_back(std::isnan(each) ? -1 : each);
  }
};

// Trains like a run, with evaluations between, but hardly ever waits.
Ended train_on(Backend& backend, const TrainConfig& config) {
  const Task task = open_task(config);
  data::Loader loader(
      *task.train_data, batch_plan(config), config.loader, {}, batch_memory(backend));
  data::Loader samples(
      *task.eval_data,
      {.batch = eval_batch(config, *task.eval_data), .shuffle = false, .repeat = false},
      config.loader,
      {},
      batch_memory(backend));
  TrainingRun run(task, config, backend, program_options(config, task));
  Ended ended;
  for (int64_t step = 0; step < config.train.steps; ++step) {
    run.run_step(loader.next(), step, config.train.steps);
    if (step % 7 == 5) {
      const StepResult last = run.last_result();
      ended.add({last.loss, last.grad_norm, last.count, last.skipped ? 1.0 : 0.0});
    }
    if (step % 10 != 8) continue;
    samples.seek({});
    StepResult sums;
    for (const data::Batch* batch = &samples.next(); batch->count > 0; batch = &samples.next())
      run.evaluate(*batch, sums);
    ended.add({sums.loss, sums.correct, sums.count});
  }
  ended.hash = run.state_hash();
  ended.numbers.push_back(static_cast<double>(run.halted_steps()));
  ended.numbers.push_back(run.loss_scale());
  ended.numbers.push_back(static_cast<double>(run.skipped_steps()));
  return ended;
}

std::vector<LazyOptions> paces() {
  std::vector<LazyOptions> paces{{.schedule = Schedule::kAtLast},
                                 {.schedule = Schedule::kFavored, .favored = 0},
                                 {.schedule = Schedule::kFavored, .favored = 4}};
  for (int seed = 0; seed < cases(4); ++seed)
    paces.push_back({.schedule = Schedule::kRandom, .seed = static_cast<uint64_t>(seed)});
  return paces;
}

class TrainOnDevice : public ::testing::TestWithParam<std::string> {
 protected:
  TrainConfig config() const {
    TrainConfig c = small_config(GetParam());
    c.train.steps = 12;  // past the ragged batch of an epoch
    return c;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, TrainOnDevice, ::testing::Values("mlp", "cnn", "gpt"));

TEST_P(TrainOnDevice, GivesTheBitsOfTheCpu) {
  const auto cpu = make_cpu_backend();
  for (const int64_t micro : {1, 3}) {
    TrainConfig c = config();
    c.train.micro = micro;
    const Ended wanted = train_on(*cpu, c);
    bool records = micro == 1;
    for (LazyOptions pace : paces()) {
      pace.records = records = !records;
      LazyBackend device(pace);
      EXPECT_EQ(train_on(device, c), wanted) << micro << " " << pace.seed << " " << records;
    }
  }
}

// Under ThreadSanitizer this is the proof that no wait is missing.
TEST_P(TrainOnDevice, StreamsOnThreadsGiveTheBitsOfTheCpu) {
  const auto cpu = make_cpu_backend(), threaded = make_cpu_backend(StreamMode::kThread);
  for (const int64_t micro : {1, 3}) {
    TrainConfig c = config();
    c.train.micro = micro;
    const Ended wanted = train_on(*cpu, c);
    for (int i = 0; i < cases(4); ++i) EXPECT_EQ(train_on(*threaded, c), wanted) << micro;
  }
}

// Steps that are skipped change what later ones are given.
TEST(TrainOnADevice, SkippedStepsAreCountedOnIt) {
  TrainConfig c = small_config("mlp");
  c.train.precision = Precision::kFp16;
  c.train.loss_scale = 1 << 24;
  c.train.steps = 40;
  const auto cpu = make_cpu_backend();
  for (const int64_t micro : {1, 2}) {
    c.train.micro = micro;
    const Ended wanted = train_on(*cpu, c);
    EXPECT_GE(wanted.numbers.back(), 3);
    for (const LazyOptions& pace : paces()) {
      LazyBackend device(pace);
      EXPECT_EQ(train_on(device, c), wanted) << micro << " " << pace.seed;
    }
  }
}

size_t count(const std::vector<std::string>& log, std::string_view text) {
  return static_cast<size_t>(std::count_if(log.begin(), log.end(), [&](const std::string& line) {
    return line.find(text) != std::string::npos;
  }));
}

// The host waits for the copies of the run before the last, and for nothing else.
TEST(TrainOnADevice, ASteadyStepNeitherWaitsNorAllocates) {
  for (const Precision precision : {Precision::kF32, Precision::kFp16})
    for (const int64_t micro : {1, 3}) {
      TrainConfig c = small_config("gpt");
      c.train.precision = precision;
      c.train.micro = micro;
      LazyBackend device({.records = true});
      const Task task = open_task(c);
      data::Loader loader(*task.train_data, batch_plan(c), c.loader, {}, batch_memory(device));
      std::vector<data::KeptBatch> kept;
      for (int i = 0; i < 4; ++i) kept.emplace_back(loader.next(), task.train_data->fields());
      TrainingRun run(task, c, device, program_options(c, task));
      const auto take_steps = [&](int64_t from, int64_t to) {
        for (int64_t step = from; step < to; ++step)
          run.run_step(kept[static_cast<size_t>(step % 4)].batch(), step, 100);
      };
      take_steps(0, 6);
      device.clear_log();
      take_steps(6, 30);
      EXPECT_EQ(count(device.log(), "allocate"), 0u) << name_of(precision);
      EXPECT_EQ(count(device.log(), "host waits for stream"), 0u) << name_of(precision);
      const size_t runs = 24 * static_cast<size_t>(micro == 1 ? 1 : micro + 1);
      EXPECT_EQ(count(device.log(), "host waits for event"), runs) << name_of(precision);
      EXPECT_EQ(count(device.log(), "0: replay"), runs) << name_of(precision);
      EXPECT_TRUE(run.last_result().is_finite());
    }
}

// The step is known as far as steps were waited for.
TEST(TrainOnADevice, WrongDataAreToldWithTheStep) {
  TrainConfig c = small_config("mlp");
  const Task task = open_task(c);
  data::Loader loader(*task.train_data, batch_plan(c), c.loader);
  const data::KeptBatch good(loader.next(), task.train_data->fields());
  std::vector<int64_t> labels(static_cast<size_t>(good.batch().count), 99);
  data::Batch bad = good.batch();
  bad.fields[1] = labels.data();
  const auto threaded = make_cpu_backend(StreamMode::kThread);
  LazyBackend lazy({.records = true});
  for (Backend* backend : {threaded.get(), static_cast<Backend*>(&lazy)}) {
    TrainingRun run(task, c, *backend, program_options(c, task));
    for (int64_t step = 0; step < 3; ++step) run.train_step(good.batch(), step, 100);
    const auto error = [&](int64_t from, int64_t bad_step, int64_t to) {
      return user_error([&] {
        for (int64_t step = from; step <= to; ++step)
          run.run_step(step == bad_step ? bad : good.batch(), step, 100);
        run.last_result();
      });
    };
    EXPECT_THAT(error(3, 4, 6), testing::HasSubstr(", in one of the steps 4 to 7"));
    EXPECT_THAT(error(7, 7, 7), testing::HasSubstr(", in step 8"));
    run.synchronize();
  }
}

// The message is of the configuration's key.
TEST(TrainOnADevice, CaptureThatCannotBeIsRefused) {
  TrainConfig c = small_config("mlp");
  c.train.capture = Capture::kOn;
  EXPECT_EQ(user_error([&] { run_small(c); }),
            "device 'cpu' cannot capture the launches of a step; set train.capture to auto");
  c.train.capture = Capture::kOff;
  LazyBackend device({.records = true});
  train_on(device, c);
  EXPECT_EQ(count(device.log(), "0: replay"), 0u);
}

}  // namespace
}  // namespace ridge::test
