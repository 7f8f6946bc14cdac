// Training runs: the same bits whatever the threads, workers and interruptions; exact memory.
#include "ridge/train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/stop.h"
#include "ridge/infer/generate.h"
#include "ridge/io/checkpoint.h"
#include "ridge/train/checkpointing.h"
#include "ridge/train/evaluate.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

constexpr const char* kKinds[] = {"mlp", "cnn", "gpt"};

TEST(Train, SameStateForAnyNumberOfThreadsAndWorkers) {
  const int threads = num_threads();
  for (const char* kind : kKinds) {
    TrainConfig config = small_config(kind);
    config.train.steps = std::max(12, std::min(50, cases(50)));  // past the ragged batch of 10
    set_num_threads(1);
    config.loader.workers = 0;
    const TrainResult one = run_small(config);
    EXPECT_EQ(one.state_hash.size(), 16u);
    set_num_threads(2);
    for (int64_t workers : {0, 4}) {
      config.loader.workers = workers;
      EXPECT_EQ(run_small(config).state_hash, one.state_hash) << kind << " " << workers;
    }
    config.train.seed = 8;
    EXPECT_NE(run_small(config).state_hash, one.state_hash) << kind;
  }
  set_num_threads(threads);
}

TEST(Train, MicroBatchesWalkTheSamePath) {
  for (const char* kind : {"mlp", "gpt"}) {
    TrainConfig config = small_config(kind);
    config.model.dtype = DType::kF64;
    Watch whole, parts;
    run_small(config, whole);
    config.train.micro = 3;  // 16 = 6 + 5 + 5, and the ragged last batch in parts too
    run_small(config, parts);
    ASSERT_EQ(whole.losses.size(), 50u);
    for (size_t i = 0; i < whole.losses.size(); ++i)
      EXPECT_NEAR(whole.losses[i], parts.losses[i], 1e-9) << kind << " step " << i;
  }
}

TEST(Train, ALossInPartsWalksTheSamePath) {
  for (const char* kind : {"mlp", "gpt"}) {
    TrainConfig config = small_config(kind);
    config.model.dtype = DType::kF64;
    config.train.steps = std::max(12, std::min(50, cases(50)));  // past the ragged batch
    Watch whole;
    const TrainResult expected = run_small(config, whole);
    config.train.loss_chunks = 7;
    for (int64_t micro : {1, 3}) {
      config.train.micro = micro;
      Watch parts;
      const TrainResult result = run_small(config, parts);
      ASSERT_EQ(whole.losses.size(), parts.losses.size());
      for (size_t i = 0; i < whole.losses.size(); ++i)
        EXPECT_NEAR(whole.losses[i], parts.losses[i], 1e-9) << kind << " step " << i;
      // Sums in another order: that they were made so shows in the last bits.
      EXPECT_NE(result.state_hash, expected.state_hash) << kind;
    }
  }
}

TEST(Train, NumbersHaveNoLossInParts) {
  const TempFolder folder;
  TrainConfig config = small_config("mlp");
  config.data.kind = data::DataKind::kTable;
  config.data.path = (folder / "numbers.csv").string();
  config.data.target = "y";
  config.data.task = data::TableTask::kRegress;
  config.model.mlp.outputs = 1;
  config.train.batch = 1;
  std::ofstream(config.data.path) << "a,y\n0.5,1.5\n0.25,2.5\n0.75,3.5\n";
  config.data.eval_fraction = 0.4;
  config.train.loss_chunks = 2;
  EXPECT_THAT(user_error([&] { run_small(config); }),
              testing::HasSubstr("train.loss_chunks is 2, but the targets are numbers"));
}

TEST(Train, VerifyPassesOnEveryModel) {
  for (const char* kind : kKinds) {
    for (int64_t micro : {1, 2}) {
      TrainRequest request;
      request.config = small_config(kind);
      request.config.train.batch = 4;
      request.config.data.eval_fraction = 0.0;
      request.config.train.steps = 1;
      request.config.train.micro = micro;
      request.verify = true;
      for (int64_t chunks : {1, 3}) {
        request.config.train.loss_chunks = chunks;
        Watch watch;
        const TrainResult result = train(request, watch);
        EXPECT_EQ(result.verified, std::optional<bool>(true))
            << kind << " in " << chunks << testing::PrintToString(watch.messages);
      }
    }
  }
}

TEST(Train, SixteenBitsLearnAndVerify) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    TrainRequest request;
    request.config = small_config("mlp");
    request.config.train.precision = precision;
    request.verify = true;
    Watch watch;
    const TrainResult result = train(request, watch);
    EXPECT_EQ(result.verified, std::optional<bool>(true)) << testing::PrintToString(watch.messages);
    EXPECT_LT(watch.losses.back(), watch.losses.front()) << name_of(precision);
  }
}

// ---- kill and resume ----

// Trains in a child process that dies by SIGKILL after `step` steps.
void train_and_die(const TrainConfig& config, int64_t step) {
  const pid_t child = fork();
  if (child == 0) {
    Watch watch;
    watch.step = [&](const StepReport& report) {
      if (report.step == step) raise(SIGKILL);
    };
    try {
      run_small(config, watch);
    } catch (...) {
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TrainResult resume(const TrainConfig& config, Watch& watch) {
  TrainRequest request;
  request.config = config;
  request.resume = "auto";
  return train(request, watch);
}

class KilledRun : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer does not follow a fork with threads";
#endif
    // Threads of the pool do not survive a fork: there are none.
    set_num_threads(1);
    config_ = small_config("gpt");
    config_.train.out = (folder_ / "run").string();
    config_.checkpoint.every = 4;
    config_.checkpoint.keep = 3;
  }
  void TearDown() override { set_num_threads(threads_); }
  int threads_ = num_threads();
  TempFolder folder_;
  TrainConfig config_;
};

TEST_F(KilledRun, ResumesToTheSameState) {
  TrainConfig whole = config_;
  whole.train.out = (folder_ / "whole").string();
  train_and_die(config_, 25);
  Watch watch;
  const TrainResult resumed = resume(config_, watch);
  EXPECT_THAT(watch.messages, testing::Contains(testing::HasSubstr("step-00000024")));
  EXPECT_EQ(resumed.steps, 50);
  EXPECT_EQ(resumed.state_hash, run_small(whole).state_hash);
  // Every step once, though steps 25 was measured twice.
  std::ifstream lines(config_.train.out + "/metrics.jsonl");
  std::vector<int64_t> steps;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) steps.push_back(json.at("step"));
  }
  ASSERT_EQ(steps.size(), 50u);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(steps[static_cast<size_t>(i)], i + 1);
}

// The loss scale and the steps that it skipped are part of a checkpoint.
TEST_F(KilledRun, ResumesToTheSameStateInFp16) {
  config_.train.precision = Precision::kFp16;
  config_.train.loss_scale = 1 << 22;
  config_.train.loss_chunks = 3;
  TrainConfig whole = config_;
  whole.train.out = (folder_ / "whole").string();
  train_and_die(config_, 6);
  Watch watch, uninterrupted;
  const TrainResult resumed = resume(config_, watch);
  EXPECT_THAT(watch.messages, testing::Contains(testing::HasSubstr("step-00000004")));
  EXPECT_EQ(resumed.state_hash, run_small(whole, uninterrupted).state_hash);
  EXPECT_THAT(uninterrupted.messages,
              testing::Contains(testing::HasSubstr("of 50 steps were skipped")));
}

// A checkpoint must hold all its parts: without any one the run ends elsewhere.
TEST_F(KilledRun, EveryPartOfACheckpointIsNeeded) {
  TrainConfig whole = config_;
  whole.train.out = (folder_ / "whole").string();
  const std::string wanted = run_small(whole).state_hash;
  config_.train.steps = 50;
  // A run that was stopped at step 24: its checkpoint is taken apart below.
  train_and_die(config_, 25);
  std::vector<std::string> skipped;
  const auto original = open_latest(checkpoint_folder(config_.train.out), skipped);
  ASSERT_TRUE(original.has_value());
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  for (const auto& entry : original->tensors()) {
    names.push_back(entry.name);
    tensors.push_back(original->read(entry.name));
  }
  const auto hash_from = [&](const char* label, auto&& change) {
    Checkpoint info = original->info();
    std::vector<Tensor> changed = tensors;
    change(info, changed);
    TrainConfig other = config_;
    other.train.out = (folder_ / label).string();
    std::vector<TensorView> views;
    for (size_t i = 0; i < names.size(); ++i)
      views.push_back({names[i], changed[i].type(), changed[i].data()});
    std::filesystem::create_directories(other.train.out);
    save_checkpoint(checkpoint_folder(other.train.out), info, views);
    Watch watch;
    return resume(other, watch).state_hash;
  };
  EXPECT_EQ(hash_from("same", [](Checkpoint&, std::vector<Tensor>&) {}), wanted);
  EXPECT_NE(hash_from("step", [](Checkpoint& c, std::vector<Tensor>&) { c.step = 0; }), wanted);
  EXPECT_NE(hash_from("sample", [](Checkpoint& c, std::vector<Tensor>&) { c.sample = 0; }), wanted);
  EXPECT_NE(hash_from("epoch", [](Checkpoint& c, std::vector<Tensor>&) { c.epoch = 0; }), wanted);
  for (const char* moment : {".m", ".v"}) {
    EXPECT_NE(hash_from(moment + 1,
                        [&](Checkpoint&, std::vector<Tensor>& all) {
                          for (size_t i = 0; i < names.size(); ++i)
                            if (names[i].ends_with(moment)) {
                              all[i] = Tensor(all[i].type());
                              return;
                            }
                          FAIL() << "no moment";
                        }),
              wanted)
        << moment;
  }
}

TEST_F(KilledRun, ACorruptCheckpointGivesWayToTheOneBefore) {
  train_and_die(config_, 25);
  const auto file = checkpoint_path(checkpoint_folder(config_.train.out), 24) / "state.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  Watch watch;
  const TrainResult resumed = resume(config_, watch);
  EXPECT_THAT(watch.messages,
              testing::Contains(testing::HasSubstr("step-00000020 takes its place")));
  TrainConfig whole = config_;
  whole.train.out = (folder_ / "whole").string();
  EXPECT_EQ(resumed.state_hash, run_small(whole).state_hash);
}

TEST(Train, ACheckpointOfAnotherModelIsRefused) {
  const TempFolder folder;
  TrainConfig config = small_config("mlp");
  config.train.out = (folder / "run").string();
  config.train.steps = 3;
  run_small(config);
  config.model.mlp.hidden = {17, 12};
  config.train.steps = 5;
  TrainRequest request;
  request.config = config;
  request.resume = "auto";
  Watch watch;
  EXPECT_THAT(user_error([&] { train(request, watch); }),
              testing::AllOf(testing::HasSubstr("layers.0"), testing::HasSubstr("f32[20,17]")));
}

TEST(Train, AnEarlierRunIsNotOverwritten) {
  const TempFolder folder;
  TrainConfig config = small_config("mlp");
  config.train.out = (folder / "run").string();
  config.train.steps = 3;
  run_small(config);
  EXPECT_THAT(user_error([&] { run_small(config); }),
              testing::AllOf(testing::HasSubstr("earlier run, up to step 3"),
                             testing::HasSubstr("--resume auto")));
}

TEST(Train, ASignalEndsTheRunAfterASave) {
  const TempFolder folder;
  TrainConfig config = small_config("mlp");
  config.train.out = (folder / "run").string();
  Watch watch;
  watch.step = [](const StepReport& report) {
    if (report.step == 10) request_stop(SIGINT);
  };
  const TrainResult stopped = run_small(config, watch);
  clear_stop();
  EXPECT_EQ(stopped.interrupted_by, SIGINT);
  EXPECT_EQ(stopped.steps, 10);
  Watch rest;
  const TrainResult resumed = resume(config, rest);
  EXPECT_EQ(rest.losses.size(), 40u);
  config.train.out.clear();
  EXPECT_EQ(resumed.state_hash, run_small(config).state_hash);
}

// ---- weights in and out ----

TEST(Train, SavedWeightsStartAnotherRun) {
  const TempFolder folder;
  TrainConfig config = small_config("cnn");
  config.train.out = (folder / "run").string();
  run_small(config);
  Watch none;
  const EvalResult from_checkpoint = evaluate_model(config, "", none);
  const EvalResult from_file =
      evaluate_model(config, config.train.out + "/model.safetensors", none);
  EXPECT_EQ(from_checkpoint.report.loss, from_file.report.loss);
  EXPECT_EQ(from_file.report.samples, 15);
  TrainRequest request;
  request.config = config;
  request.config.train.out.clear();
  request.config.train.steps = 1;
  request.config.train.eval_every = 1;
  request.config.optimizer.lr = 0;
  request.config.optimizer.weight_decay = 0;
  request.config.model.cnn.momentum = 0;
  request.init = config.train.out + "/model.safetensors";
  const TrainResult result = train(request, none);
  EXPECT_EQ(result.final.eval_loss, from_file.report.loss);
}

TEST(Train, GenerationIsRepeatableAndStaysInTheVocabulary) {
  const TempFolder folder;
  TrainConfig config = small_config("gpt");
  config.data.context = 8;
  config.train.out = (folder / "run").string();
  config.train.steps = 5;
  run_small(config);
  GenerateRequest request;
  request.config = config;
  request.prompt = "\1\2\3";
  request.tokens = 20;
  const auto text = [&] {
    std::string bytes;
    Watch watch;
    generate(request, watch, [&](std::string_view piece) { bytes += piece; });
    return bytes;
  };
  const std::string first = text();
  EXPECT_EQ(first.size(), 20u);
  EXPECT_EQ(text(), first);
  for (const char c : first) EXPECT_LT(c, 11);
  request.seed = 1;
  EXPECT_NE(text(), first);
  request.prompt = "a";
  EXPECT_THAT(user_error(text), testing::HasSubstr("byte 97"));
}

// ---- what can go wrong ----

TEST(Train, ALossThatIsNotFiniteNamesStepAndNode) {
  TrainConfig config = small_config("mlp");
  config.optimizer.lr = 900;
  config.optimizer.clip = 0;
  config.schedule.warmup = 0;
  config.optimizer.kind = nn::OptimizerKind::kSgd;
  EXPECT_THAT(user_error([&] { run_small(config); }),
              testing::AllOf(testing::HasSubstr("not finite is in "),
                             testing::ContainsRegex("step [0-9]+:"),
                             testing::HasSubstr("lower optimizer.lr (now 900)")));
}

// Noticed steps later, at the end of the run: the same error, of the same step and node.
TEST(Train, AFailureThatIsNoticedLateIsToldAsIfAtOnce) {
  TrainConfig config = small_config("mlp");
  config.optimizer.lr = 900;
  config.optimizer.clip = 0;
  config.schedule.warmup = 0;
  config.optimizer.kind = nn::OptimizerKind::kSgd;
  config.train.eval_every = 1000;
  for (const int64_t micro : {1, 3}) {
    config.train.micro = micro;
    config.metrics.every = 1;
    const std::string at_once = user_error([&] { run_small(config); });
    const int64_t step = std::stoll(at_once.substr(at_once.find("step ") + 5));
    EXPECT_LT(step, 50) << "it is noticed at once: " << at_once;
    config.metrics.every = 1000;
    EXPECT_EQ(user_error([&] { run_small(config); }), at_once);
  }
}

// ---- what is told ----

// Step and loss of each line.
std::map<int64_t, double> told_losses(const TrainConfig& config) {
  std::map<int64_t, double> losses;
  std::ifstream lines(config.train.out + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) losses[json.at("step")] = json.at("loss");
  }
  return losses;
}

TEST(Train, StepsMayBeToldLateAndAreTheSame) {
  const TempFolder folder;
  TrainConfig config = small_config("mlp");
  config.checkpoint.every = 7;
  config.train.eval_every = 9;
  config.train.out = (folder / "all").string();
  Watch all, some;
  const TrainResult each = run_small(config, all);
  const std::map<int64_t, double> losses = told_losses(config);
  ASSERT_EQ(losses.size(), 50u);
  config.metrics.every = 4;
  config.train.out = (folder / "some").string();
  const TrainResult few = run_small(config, some);
  EXPECT_EQ(few.state_hash, each.state_hash);
  EXPECT_EQ(few.final.train_loss, each.final.train_loss);
  std::map<int64_t, double> expected;
  for (int64_t step = 1; step <= 50; ++step)
    if (step % 4 == 0 || step % 7 == 0 || step % 9 == 0 || step == 50)
      expected[step] = losses.at(step);
  EXPECT_EQ(told_losses(config), expected);
  EXPECT_EQ(some.losses.size(), expected.size());
}

TEST(Train, TheLastStepOfAStoppedRunIsTold) {
  const TempFolder folder;
  TrainConfig config = small_config("mlp");
  config.train.out = (folder / "run").string();
  config.train.steps = 1000000;
  config.train.eval_every = 1000000;
  config.metrics.every = 1000000;
  std::thread stopper([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    request_stop(SIGINT);
  });
  const TrainResult stopped = run_small(config);
  stopper.join();
  clear_stop();
  const std::map<int64_t, double> told = told_losses(config);
  EXPECT_EQ(told.size(), stopped.steps > 0 ? 1u : 0u);
  if (stopped.steps > 0) {
    EXPECT_TRUE(told.contains(stopped.steps));
  }
}

TEST(Train, ABatchLargerThanTheDataIsRefused) {
  TrainConfig config = small_config("mlp");
  config.train.batch = 1000;
  EXPECT_THAT(user_error([&] { run_small(config); }),
              testing::AllOf(testing::HasSubstr("1000"), testing::HasSubstr("only 150")));
}

TEST(Train, PlannedMemoryIsWhatTheSystemCounts) {
  TrainConfig config = small_config("mlp");
  config.model.mlp.hidden = {2048, 2048};
  config.data.shape = {512};
  config.train.batch = 128;
  config.data.samples = 1000;
  config.train.steps = 6;
  const TrainResult result = run_small(config);
  if (result.memory.measured_bytes == 0) GTEST_SKIP() << "the system does not tell RssAnon";
  const double planned = static_cast<double>(result.memory.planned_bytes);
  EXPECT_GT(planned, 60e6);
  EXPECT_GE(result.memory.planned_bytes, result.memory.lower_bound_bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_NEAR(static_cast<double>(result.memory.measured_bytes),
              planned,
              std::max(0.01 * planned, 8.0 * (1 << 20)));
#endif
}

}  // namespace
}  // namespace ridge::test
