// `ridge train` around the training itself: options, signals, what it says at the end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "ridge/base/stop.h"
#include "ridge/cli/signals.h"
#include "ridge/cli/train_report.h"
#include "ridge/cli/train_request.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::TempFolder;
using test::user_error;

TEST(TrainRequest, OptionsLieOverTheFile) {
  const TempFolder folder;
  std::ofstream(folder / "run.toml") << "[train]\nsteps = 3\nseed = 1\nbatch = 8\nout = 'a'\n";
  TrainOptions options;
  options.config.file = folder / "run.toml";
  options.config.set = {"train.seed=2", "train.steps=4", "model.hidden=16,16"};
  options.steps = "5";
  options.out = "b";
  options.resume = "auto";
  options.trace = "t.json";
  options.verify = true;
  const TrainRequest request = make_train_request(options);
  EXPECT_EQ(request.config.train.steps, 5);  // the short form wins over --set
  EXPECT_EQ(request.config.train.seed, 2u);
  EXPECT_EQ(request.config.train.batch, 8);
  EXPECT_EQ(request.config.train.out, "b");
  EXPECT_EQ(request.config.model.mlp.hidden, (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(request.resume, "auto");
  EXPECT_EQ(request.trace, "t.json");
  EXPECT_TRUE(request.verify);
  EXPECT_NE(request.config_toml.find("# flag --steps\n"), std::string::npos);
  EXPECT_NE(request.config_toml.find("run.toml:4:9\n"), std::string::npos);
}

TEST(TrainRequest, WhatDoesNotGoTogetherIsRefused) {
  const TempFolder folder;
  std::ofstream(folder / "run.toml") << "[train]\nsteps = 3\n";
  const auto refusal = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options;
    options.config.file = folder / "run.toml";
    change(options);
    return user_error([&] { make_train_request(options); });
  };
  EXPECT_EQ(refusal([](TrainOptions&) {}), "no error");
  EXPECT_NE(refusal([](auto& o) { o.resume = "auto"; }).find("--resume auto"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.resume = o.init = "a"; }).find("--init"), std::string::npos);
  EXPECT_TRUE(refusal([](auto& o) { o.steps = "x"; }).starts_with("--steps: train.steps: got "));
  EXPECT_TRUE(refusal([](auto& o) { o.seed = "-1"; }).starts_with("--seed: train.seed: got -1"));
  EXPECT_NE(refusal([](auto& o) { o.config.set = {"nothing"}; }).find("--set nothing"),
            std::string::npos);
}

TrainResult some_result() {
  TrainResult result;
  result.device = "cpu";
  result.model = "cnn";
  result.parameters = 186826;
  result.steps = 4690;
  result.epochs = 10;
  result.seconds = 151;
  result.samples_per_s = 3973.5;
  result.step_ms = {31.5, 30.25, 33};
  result.loader_wait_share = 0.0031;
  result.final = {0.1987, 0.2431, 0.9123};
  result.memory = {160 << 20, 161 << 20, 140 << 20};
  result.kernels_changed = {{"head:matmul.0", "cublaslt_1", "printed"}};
  result.state_hash = "1f2e3d4c5b6a7988";
  result.plan_hash = "0011223344556677";
  result.verified = true;
  result.checkpoint = "runs/fashion/step-4690";
  result.metrics = "runs/fashion/metrics.jsonl";
  return result;
}

TEST(TrainReport, SummaryReadsWell) {
  EXPECT_EQ(
      train_summary(some_result()),
      "trained cnn on cpu: 4,690 steps, 10 epochs, 2:31\n"
      "\n"
      "  accuracy    91.23 %         evaluation data\n"
      "  loss        0.2431          evaluation data; training 0.1987\n"
      "  speed       3.97 k samples/s\n"
      "  step        31.5 ms         from 30.2 to 33.0 ms in 80 % of the steps\n"
      "  data        0.3 %           of the time was waiting for it\n"
      "  memory      160.0 MiB       planned, 161.0 MiB measured, 140.0 MiB the least possible\n"
      "  parameters  186,826\n"
      "  checkpoint  runs/fashion/step-4690\n"
      "  metrics     runs/fashion/metrics.jsonl\n"
      "  state       1f2e3d4c5b6a7988 plan 0011223344556677\n");
}

TEST(TrainReport, WhatWasNotMeasuredIsLeftOut) {
  TrainResult bare;
  bare.model = "mlp";
  bare.device = "cpu";
  bare.steps = 1;
  bare.parameters = 5;
  bare.interrupted_by = SIGINT;
  EXPECT_EQ(train_summary(bare),
            "trained mlp on cpu: 1 step, 0 epochs, 0.0 s; stopped early by SIGINT\n"
            "\n"
            "  parameters  5\n");
  const auto json = nlohmann::json::parse(train_json(bare));
  EXPECT_TRUE(json["final"]["eval_accuracy"].is_null());
  EXPECT_TRUE(json["memory"]["measured_bytes"].is_null());
  EXPECT_TRUE(json["verified"].is_null());
  EXPECT_EQ(json["interrupted_by"], "SIGINT");
  bare.verified = false;
  EXPECT_EQ(train_summary(bare), "nothing was trained: the check of --verify failed\n");
}

TEST(TrainReport, JsonHasEveryField) {
  const std::string text = train_json(some_result());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const nlohmann::json expected = {
      {"schema", "ridge.train/1"},
      {"device", "cpu"},
      {"model", "cnn"},
      {"parameters", 186826},
      {"steps", 4690},
      {"epochs", 10.0},
      {"seconds", 151.0},
      {"samples_per_s", 3973.5},
      {"step_ms", {{"median", 31.5}, {"p10", 30.25}, {"p90", 33.0}}},
      {"loader_wait_share", 0.0031},
      {"skipped", 0},
      {"final", {{"train_loss", 0.1987}, {"eval_loss", 0.2431}, {"eval_accuracy", 0.9123}}},
      {"memory",
       {{"planned_bytes", 160 << 20},
        {"measured_bytes", 161 << 20},
        {"lower_bound_bytes", 140 << 20},
        {"captured_bytes", 0}}},
      {"capture_refusal", nullptr},
      {"kernels_changed",
       nlohmann::json::array(
           {{{"site", "head:matmul.0"}, {"was", "cublaslt_1"}, {"is", "printed"}}})},
      {"state_hash", "1f2e3d4c5b6a7988"},
      {"plan_hash", "0011223344556677"},
      {"verified", true},
      {"interrupted_by", nullptr},
      {"checkpoint", "runs/fashion/step-4690"},
      {"metrics", "runs/fashion/metrics.jsonl"}};
  EXPECT_EQ(nlohmann::json::parse(text), expected);
}

// A shell starts what it puts into the background with SIGINT ignored, and such signals stay so.
void heed(int signal) { std::signal(signal, SIG_DFL); }

TEST(StopSignals, FirstAsksAndTheOldHandlersComeBack) {
  for (const int signal : {SIGINT, SIGTERM}) {
    heed(signal);
    struct sigaction before, after;
    ::sigaction(signal, nullptr, &before);
    {
      const StopSignals signals;
      EXPECT_FALSE(stop_requested());
      ::testing::internal::CaptureStderr();
      ::raise(signal);
      EXPECT_NE(::testing::internal::GetCapturedStderr().find("stopping"), std::string::npos);
      EXPECT_TRUE(stop_requested());
      EXPECT_EQ(stop_signal(), signal);
    }
    ::sigaction(signal, nullptr, &after);
    EXPECT_EQ(after.sa_handler, before.sa_handler);
    clear_stop();
  }
}

TEST(StopSignals, SecondEndsTheProcessAtOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      heed(SIGINT);
      heed(SIGTERM);
      const StopSignals signals;
      if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(1);
      ::raise(signal == SIGINT ? SIGTERM : SIGINT);
      ::raise(signal);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
  }
}

TEST(StopSignals, IgnoredSignalsStayIgnored) {
  struct sigaction ignore{}, before;
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &before);
  {
    const StopSignals signals;
    ::raise(SIGINT);
    EXPECT_FALSE(stop_requested());
  }
  ::sigaction(SIGINT, &before, nullptr);
}

}  // namespace
}  // namespace ridge
