// Lines of text, padded to the context or to the longest of their batch: the same training either
// way, and that of each line by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>

#include "ridge/io/safetensors.h"
#include "ridge/run/backends.h"
#include "ridge/train/evaluate.h"
#include "ridge/train/training_run.h"
#include "tests/support/compare.h"
#include "tests/support/own_program.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

constexpr int64_t kContext = 40;

class Padding : public ::testing::Test {
 protected:
  Padding() {
    std::mt19937 random(11);
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 163; ++i) {
      // Most lines are short, some longer than the context.
      const uint64_t length = i % 9 == 0 ? 1 + random() % 60 : 1 + random() % 14;
      for (uint64_t k = 0; k < length; ++k) text << static_cast<char>('a' + random() % 26);
      text << '\n';
    }
  }

  TrainConfig config(data::Padding pad) const {
    TrainConfig config = small_config("gpt");
    config.model.gpt = {
        .vocab = 256, .context = kContext, .layers = 2, .heads = 2, .width = 16, .dropout = 0.0};
    config.data = {.kind = data::DataKind::kText,
                   .path = (folder_ / "text").string(),
                   .context = kContext,
                   .text_samples = data::TextSamples::kLines};
    config.optimizer = {.kind = nn::OptimizerKind::kSgd, .lr = 0.05, .clip = 1.0};
    config.loader.pad = pad;
    config.train.batch = 4;
    config.train.steps = 45;  // beyond the first epoch, 37 steps, and its smaller batch
    config.train.eval_every = 15;
    return config;
  }

  TempFolder folder_;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double error) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], error) << "step " << i + 1;
}

TEST_F(Padding, TrainingIsTheSameWithAndWithoutIt) {
  for (const int64_t micro : {1, 3}) {
    TrainConfig padded = config(data::Padding::kContext), cut = config(data::Padding::kLongest);
    padded.train.micro = cut.train.micro = micro;
    padded.train.out = (folder_ / "padded").string();
    cut.train.out = (folder_ / "cut").string();
    ASSERT_GT(open_task(cut).sizes.eval.size(), open_task(padded).sizes.eval.size());
    Watch one, other;
    const TrainResult want = run_small(padded, one), got = run_small(cut, other);
    expect_near(other.losses, one.losses, 2e-5);
    EXPECT_LT(one.losses.back(), one.losses.front());
    EXPECT_NEAR(got.final.eval_loss, want.final.eval_loss, 2e-5);
    EXPECT_DOUBLE_EQ(got.final.eval_accuracy, want.final.eval_accuracy);
    const SafetensorsFile a(padded.train.out + "/model.safetensors");
    const SafetensorsFile b(cut.train.out + "/model.safetensors");
    for (const TensorView& view : a->tensors())
      EXPECT_EQ(difference(b->read(view.name), a->read(view.name), 1e-4), "") << view.name;
    std::filesystem::remove_all(padded.train.out);
    std::filesystem::remove_all(cut.train.out);
  }
}

// In f64 nothing but the order of sums differs, whatever the optimizer.
TEST_F(Padding, InF64TheyAgreeToTheLastDigits) {
  TrainConfig padded = config(data::Padding::kContext), cut = config(data::Padding::kLongest);
  for (TrainConfig* config : {&padded, &cut}) {
    config->model.dtype = DType::kF64;
    config->optimizer = {.kind = nn::OptimizerKind::kAdamW, .lr = 1e-3, .clip = 1.0};
  }
  Watch one, other;
  run_small(padded, one);
  run_small(cut, other);
  expect_near(other.losses, one.losses, 1e-10);
}

// The gradient of a batch is that of its lines, each computed by itself without any padding.
TEST_F(Padding, ABatchIsTheSumOfItsLines) {
  TrainConfig options = config(data::Padding::kLongest);
  options.model.dtype = DType::kF64;
  const Task task = open_task(options);
  const auto backend = make_backend("cpu");
  TrainingRun run(task, options, *backend, program_options(options, task));
  data::Loader loader(*task.train_data, {.batch = options.train.batch, .seed = 4}, {.workers = 0});

  nn::ProgramSizes sizes;
  for (int64_t length = 1; length <= kContext; ++length) sizes.micro.push_back({1, length});
  OwnProgram lines(task.training->program(sizes), *backend);
  for (const TensorView& view : run.tensors(true)) {
    Tensor value(view.type);
    std::copy_n(static_cast<const std::byte*>(view.data),
                value.bytes(),
                static_cast<std::byte*>(value.data()));
    lines.state().write(view.name, value);
  }
  for (int64_t step = 0; step < 6; ++step) {
    const data::Batch& batch = loader.next();
    for (int64_t i = 0; i < batch.count; ++i) {
      const auto* x = static_cast<const int64_t*>(batch.fields[0]) + i * kContext;
      const auto* y = static_cast<const int64_t*>(batch.fields[1]) + i * kContext;
      const int64_t length = std::find(y, y + kContext, data::kPadLabel) - y;
      const size_t entry = lines.entry(nn::entry_name("micro", sizes.micro, {1, length}));
      lines.write(lines.input(entry, "x"), x);
      lines.write(lines.input(entry, "y"), y);
      lines.run(entry);
    }
    const size_t apply = lines.entry("apply");
    Tensor hyper({task.training->accumulate(), {nn::kStepScalars}});
    nn::set_hyper(nn::step_scalars(options.optimizer, options.schedule, step, 100), hyper);
    lines.write(lines.input(apply, "hyper"), hyper.data());
    lines.run(apply);
    const auto scalar = [&](const char* name) {
      Tensor value({task.training->accumulate(), {}});
      lines.read(lines.output(apply, name), value.data());
      lines.synchronize();
      return value.at(0);
    };
    const StepResult result = run.train_step(batch, step, 100);
    EXPECT_NEAR(result.loss, scalar("loss"), 1e-12);
    EXPECT_NEAR(result.grad_norm, scalar("grad_norm"), 1e-11);
    EXPECT_EQ(result.count, scalar("count"));
  }
  for (const TensorView& view : run.tensors(false)) {
    const Tensor want = lines.state().read(view.name);
    const auto* got = static_cast<const double*>(view.data);
    for (int64_t i = 0; i < want.elements(); ++i) EXPECT_NEAR(got[i], want.at(i), 1e-11);
  }
}

TEST_F(Padding, EvaluationOfAModelIsThatOfTheRun) {
  TrainConfig cut = config(data::Padding::kLongest);
  cut.train.out = (folder_ / "run").string();
  const TrainResult result = run_small(cut);
  Watch none;
  const EvalResult again = evaluate_model(cut, cut.train.out + "/model.safetensors", none);
  EXPECT_DOUBLE_EQ(again.report.loss, result.final.eval_loss);
  EXPECT_DOUBLE_EQ(again.report.accuracy, result.final.eval_accuracy);
  cut.loader.pad = data::Padding::kContext;
  const EvalResult padded = evaluate_model(cut, cut.train.out + "/model.safetensors", none);
  EXPECT_NEAR(padded.report.loss, result.final.eval_loss, 1e-5);
}

TEST_F(Padding, AResumedRunHasTheBitsOfAnUninterruptedOne) {
  TrainConfig whole = config(data::Padding::kLongest), part = config(data::Padding::kLongest);
  whole.train.steps = 30;
  whole.schedule = part.schedule = {.kind = nn::ScheduleKind::kConstant,
                                    .warmup = 5};  // steps count for a cosine
  const std::string expected = run_small(whole).state_hash;
  part.train.out = (folder_ / "run").string();
  part.train.steps = 13;
  part.loader.workers = 0;
  run_small(part);
  part.train.steps = 30;
  part.loader.workers = 3;
  TrainRequest request;
  request.config = part;
  request.resume = "auto";
  Watch watch;
  EXPECT_EQ(train(request, watch).state_hash, expected);
  EXPECT_EQ(watch.losses.size(), 17u);
}

// Another order of the samples, in batches that differ in size; a resumed run takes it up.
TEST_F(Padding, BucketsTrainAndResume) {
  TrainConfig whole = config(data::Padding::kLongest);
  whole.train.steps = 50;
  whole.schedule = {.kind = nn::ScheduleKind::kConstant, .warmup = 5};
  std::set<std::string> hashes{run_small(whole).state_hash};
  whole.loader.buckets = true;
  for (const auto& [tokens, micro] : {std::pair<int64_t, int64_t>{0, 1}, {160, 3}}) {
    whole.loader.tokens = tokens;
    whole.train.micro = micro;
    Watch watch;
    const std::string expected = run_small(whole, watch).state_hash;
    EXPECT_LT(watch.losses.back(), 0.9 * watch.losses.front());
    EXPECT_TRUE(hashes.insert(expected).second) << "the order made no difference";
    TrainConfig part = whole;
    part.train.out = (folder_ / "run").string();
    part.train.steps = 21;
    run_small(part);
    part.train.steps = 50;
    part.loader.workers = 0;
    TrainRequest request;
    request.config = part;
    request.resume = "auto";
    EXPECT_EQ(train(request, watch).state_hash, expected);
    std::filesystem::remove_all(part.train.out);
  }
}

TEST_F(Padding, VerifyPasses) {
  for (const int64_t micro : {1, 2}) {
    TrainRequest request;
    request.config = config(data::Padding::kLongest);
    request.config.loader.tokens = micro == 2 ? 160 : 0;
    request.config.train.micro = micro;
    request.config.train.steps = 3;
    request.verify = true;
    Watch watch;
    const TrainResult result = train(request, watch);
    EXPECT_EQ(result.verified, std::optional<bool>(true)) << testing::PrintToString(watch.messages);
  }
}

}  // namespace
}  // namespace ridge::test
