// Whole runs with train.precision = "fp16": what overflows, what is reported, where a run ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/io/safetensors.h"
#include "ridge/train/task.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

// A regression of targets as large as `size`, by a small MLP in fp16.
class Fp16Run : public testing::Test {
 protected:
  TrainConfig config(double size) {
    const auto path = folder_ / "rows.csv";
    std::ofstream file(path);
    file << "a,b,target\n";
    for (int i = 0; i < 96; ++i)
      file << fmt::format("{:.6f},{:.6f},{:.6f}\n",
                          std::sin(3.0 * i),
                          std::cos(7.0 * i),
                          i % 2 == 0 ? size : -size);
    TrainConfig c;
    c.model.mlp = {.hidden = {12}, .outputs = 1};
    c.data.kind = data::DataKind::kTable;
    c.data.path = path.string();
    c.data.target = "target";
    c.data.task = data::TableTask::kRegress;
    c.data.eval_fraction = 0.1;
    c.optimizer.lr = 0.01;
    c.train.seed = 5;
    c.train.batch = 16;
    c.train.steps = 30;
    c.train.precision = Precision::kFp16;
    return c;
  }
  std::vector<nlohmann::json> metrics(const TrainConfig& c) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(c.train.out + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (auto json = nlohmann::json::parse(line); json.contains("loss")) lines.push_back(json);
    return lines;
  }
  TempFolder folder_;
};

// 2e4 times the scale must not reach 65520: the scale falls from 65536 to 2 in 15 steps.
TEST_F(Fp16Run, SkipsUntilTheScaleFitsAndThenLearns) {
  for (const int64_t micro : {1, 2}) {
    TrainConfig c = config(1e4);
    c.train.micro = micro;
    c.train.out = (folder_ / fmt::format("run{}", micro)).string();
    Watch watch;
    run_small(c, watch);
    const auto lines = metrics(c);
    ASSERT_EQ(lines.size(), 30u);
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto step = static_cast<int64_t>(i) + 1;
      EXPECT_EQ(lines[i].at("skipped_steps"), std::min<int64_t>(step, 15));
      EXPECT_EQ(lines[i].at("loss_scale"),
                std::ldexp(65536.0, -static_cast<int>(std::min<int64_t>(step, 15))));
      EXPECT_EQ(lines[i].at("grad_norm").is_null(), step <= 15) << step;
      EXPECT_FALSE(lines[i].at("loss").is_null());
    }
    EXPECT_THAT(watch.messages,
                testing::Contains("15 of 30 steps were skipped, since their gradients overflowed "
                                  "f16; the loss scale is 2"));
  }
}

TEST_F(Fp16Run, SkippedStepsLeaveTheParameters) {
  TrainConfig c = config(1e4);
  c.train.out = (folder_ / "run").string();
  for (const int64_t steps : {10, 20}) {
    c.train.steps = steps;
    TrainRequest request;
    request.config = c;
    request.resume = "auto";
    Watch watch;
    train(request, watch);
    const SafetensorsFile file(std::filesystem::path(c.train.out) / "model.safetensors");
    const Task task = open_task(c);
    for (const nn::ParameterSpec& spec : task.training->parameters()) {
      Tensor now(spec.type);
      file->read_into(spec.name, spec.type, now.data());
      EXPECT_EQ(now.same_bits(nn::initial_value(spec, 5)), steps == 10) << spec.name;
    }
  }
}

TEST_F(Fp16Run, HasTheSameBitsEverywhere) {
  const TrainConfig c = config(100);
  const int threads = num_threads();
  const cpu::Isa isa = cpu::isa();
  set_num_threads(1);
  const std::string wanted = run_small(c).state_hash;
  set_num_threads(3);
  EXPECT_EQ(run_small(c).state_hash, wanted);
  cpu::set_isa(cpu::Isa::kAvx2);
  EXPECT_EQ(run_small(c).state_hash, wanted);
  cpu::set_isa(isa);
  set_num_threads(threads);
  TrainConfig f32 = c;
  f32.train.precision = Precision::kF32;
  EXPECT_NE(run_small(f32).state_hash, wanted);
}

TEST_F(Fp16Run, OnlyFp16TellsOfAScale) {
  TrainConfig c = config(1);
  c.train.precision = Precision::kBf16;
  c.train.out = (folder_ / "run").string();
  run_small(c);
  for (const auto& line : metrics(c)) {
    EXPECT_FALSE(line.contains("loss_scale"));
    EXPECT_FALSE(line.contains("skipped_steps"));
  }
}

// A scale of 1 cannot be lowered: the run ends as in f32.
TEST_F(Fp16Run, EndsWhereNoScaleHelps) {
  TrainConfig c = config(1e6);
  c.train.loss_scale = 4;
  EXPECT_THAT(user_error([&] { run_small(c); }),
              testing::AllOf(testing::HasSubstr("step 3: loss "),
                             testing::ContainsRegex("gradient norm (inf|nan); the first value that "
                                                    "is not finite is in [a-z]"),
                             testing::HasSubstr("lower optimizer.lr (now 0.01)")));
}

// No scale mends a loss that is not finite: activations beyond f16.
TEST_F(Fp16Run, EndsByALossThatIsNotFinite) {
  TrainConfig c = config(1);
  c.optimizer.kind = nn::OptimizerKind::kSgd;
  c.optimizer.lr = 1e8;
  EXPECT_THAT(user_error([&] { run_small(c); }),
              testing::AllOf(testing::ContainsRegex("step [0-9]+: loss (inf|nan)"),
                             testing::HasSubstr("lower optimizer.lr (now 100000000)")));
}

}  // namespace
}  // namespace ridge::test
