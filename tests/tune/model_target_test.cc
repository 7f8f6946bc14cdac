// A model as the target of the loop, with runners that are made up: no process, no clock.
#include "ridge/tune/onnx/model_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ridge/io/file.h"
#include "ridge/proof/ledger/ledger_text.h"
#include "ridge/proof/report/report.h"
#include "ridge/tune/onnx/model_report.h"
#include "ridge/tune/replay.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::HasSubstr;

constexpr const char* kPicked = "0123456789abcdef";

// The program that the runners make up.
struct MadeUpModel {
  double rival_seconds = 0;  ///< A run of one row takes it; 0: there is no rival.
  bool bf16_is_wrong = false, one_thread_is_wrong = false;
  /// The relative error of a quantized model; without one, samples are drawn, and nothing is
  /// quantized.
  std::optional<double> quantized_off = {};
  std::string folder = {};               ///< It has the files that recipes name.
  std::vector<std::string> opened = {};  ///< Recipes.
};

bool has(const ModelRecipe& recipe, const char* kernel) {
  for (const auto& [hash, name] : recipe.choices.kernels)
    if (name == kernel) return true;
  return false;
}

// 10 ms for a row: one thread gains a tenth, timed kernels a third, bf16 a half, bytes half as
// much again.
double row_seconds(const ModelRecipe& recipe) {
  double seconds = 0.010;
  if (recipe.threads == 1) seconds /= 1.1;
  if (recipe.choices.pick == KernelPick::kTimed || has(recipe, "fast")) seconds /= 1.3;
  if (recipe.choices.precision == DType::kBF16) seconds /= 1.5;
  if (!recipe.quantized.empty()) seconds /= 2;
  if (recipe.batch) seconds /= 1.2;
  return seconds;
}

SampleOutputs outputs_off(double off, DType dtype, size_t count) {
  SampleOutputs outputs(count);
  for (NamedTensors& each : outputs) {
    Tensor y({dtype, {64}});
    for (int64_t i = 0; i < 64; ++i)
      y.set(i,
            std::sin(static_cast<double>(i)) * (1 + off * std::cos(5.0 * static_cast<double>(i))));
    each.emplace("y", std::move(y));
  }
  return outputs;
}

class MadeUpVariant final : public OpenModel {
 public:
  MadeUpVariant(double seconds,
                int64_t samples,
                SessionFacts facts,
                SampleOutputs outputs,
                uint64_t seed,
                bool is_quantized = false)
      : seconds_(seconds),
        samples_(samples),
        facts_(std::move(facts)),
        outputs_(std::move(outputs)),
        generator_(seed),
        is_quantized_(is_quantized) {}
  Block run(int64_t steps) override {
    std::normal_distribution<double> noise(1, 0.01);
    const double seconds = seconds_ * noise(generator_);
    runs_.push_back(seconds);
    return {.seconds = static_cast<double>(steps) * seconds};
  }
  double open_seconds() const override { return 0.1; }
  const SessionFacts& facts() const override { return facts_; }
  const SampleOutputs& outputs() const override { return outputs_; }
  int64_t samples() const override { return samples_; }
  bool is_quantized() const override { return is_quantized_; }
  std::vector<double> take_runs() override { return std::exchange(runs_, {}); }

 private:
  double seconds_;
  int64_t samples_;
  SessionFacts facts_;
  SampleOutputs outputs_;
  std::mt19937_64 generator_;
  std::vector<double> runs_;
  bool is_quantized_;
};

class MadeUpRunners final : public ModelRunners {
 public:
  explicit MadeUpRunners(MadeUpModel& model) : model_(model) {
    samples_.samples.resize(4);
    samples_.sizes = {{"N", 1}, {"T", 128}};
    samples_.rows = "N";
    samples_.is_drawn = !model.quantized_off.has_value();
  }
  const ModelSamples& samples() override { return samples_; }

  std::unique_ptr<OpenModel> open(const std::string& text, size_t count, int64_t) override {
    model_.opened.push_back(text);
    const ModelRecipe recipe = text.empty() ? ModelRecipe{} : parse_model_recipe(text, "recipe");
    if (!recipe.runtime.empty()) {
      std::string name;
      return open_rival(recipe.batch.value_or(1), name);
    }
    SessionFacts facts{.plan_hash = "plan", .planned_bytes = 3000, .state_bytes = 2000};
    facts.arena_bytes = 1000;
    facts.peak_bytes = 5000;
    facts.first_seconds = 0.05;
    facts.has_alternatives = facts.has_bf16 = true;
    if (recipe.choices.pick == KernelPick::kTimed || has(recipe, "fast"))
      facts.kernels = {std::string(kPicked) + " fast"};
    const int64_t batch = recipe.batch.value_or(1);
    const bool is_bf16 = recipe.choices.precision == DType::kBF16;
    double off = is_bf16 ? 2e-3 : 1e-8;
    if (is_bf16 && model_.bf16_is_wrong) off = 0.05;
    if (recipe.threads == 1 && model_.one_thread_is_wrong) off = 1e-3;
    const bool is_quantized = !recipe.quantized.empty();
    if (is_quantized) {
      off = model_.quantized_off.value();
      if (recipe.quantized == "m.static.onnx") throw VariantFailed("the error is beyond the limit");
      write_file_atomically(file(recipe.quantized), "a quantized model");
    }
    return std::make_unique<MadeUpVariant>(row_seconds(recipe) * static_cast<double>(batch),
                                           batch * recipe.instances,
                                           facts,
                                           outputs_off(off, DType::kF32, count),
                                           ++seed_,
                                           is_quantized);
  }
  SampleOutputs wide_outputs(ModelRole role, size_t count, int64_t, double& seconds) override {
    seconds = 0.05;
    return outputs_off(role == ModelRole::kControl ? 2e-3 : 0, DType::kF64, count);
  }
  std::string file(const std::string& name) const override { return model_.folder + "/" + name; }
  std::unique_ptr<OpenModel> open_rival(int64_t batch, std::string& name) override {
    if (model_.rival_seconds == 0) return nullptr;
    name = "ONNX Runtime 9.8.7";
    const double gain = batch > 1 ? 1.1 : 1;
    return std::make_unique<MadeUpVariant>(model_.rival_seconds * static_cast<double>(batch) / gain,
                                           batch,
                                           SessionFacts{.peak_bytes = 7000, .first_seconds = 0.3},
                                           SampleOutputs(),
                                           ++seed_);
  }

 private:
  MadeUpModel& model_;
  ModelSamples samples_;
  uint64_t seed_ = 0;
};

class Silent final : public OptimizeObserver {
  void on_message(const std::string&) override {}
  void on_trial(const TrialRecord&) override {}
};

class ModelLoop : public testing::Test {
 protected:
  ModelLoop() {
    request_.model = (folder_ / "m.onnx").string();
    model_.folder = folder_.path().string();
    write_file_atomically(request_.model, "a model");
    machine_.cpus = machine_.cores = machine_.threads = 2;
    machine_.huge_pages = "always [madvise] never";
  }

  OptimizeResult run() {
    if (model_.rival_seconds > 0) request_.against = PeerRuntime::kOnnxRuntime;
    target_ = model_target(request_, std::make_unique<MadeUpRunners>(model_), machine_);
    Silent silent;
    return run_loop(*target_, {.budget_seconds = 1e6}, silent);  // no clock is near its end
  }
  static std::map<std::string, TrialVerdict> verdicts(const OptimizeResult& result) {
    std::map<std::string, TrialVerdict> verdicts;
    for (const TrialRecord& record : result.trials)
      verdicts[record.change.empty() ? record.technique : record.change] = record.verdict;
    return verdicts;
  }

  TempFolder folder_;
  MadeUpModel model_;
  ModelRequest request_;
  ModelSituation machine_;
  std::unique_ptr<Target> target_;
};

TEST_F(ModelLoop, KeepsWhatGainsAndItsRecipeHasTheKernels) {
  OptimizeResult result = run();
  const auto found = verdicts(result);
  EXPECT_EQ(found.at("threads 2 -> 1"), TrialVerdict::kKept);
  EXPECT_EQ(found.at("kernels: the fastest of those with the same bits"), TrialVerdict::kKept);
  EXPECT_EQ(found.at("precision f32 -> bf16"), TrialVerdict::kKept);
  EXPECT_EQ(found.at("pin false -> true"), TrialVerdict::kNotFaster);
  EXPECT_EQ(found.at("pages"), TrialVerdict::kNotTried);
  const OptimizeSummary& summary = result.summary;
  EXPECT_NEAR(summary.claim.speedup, 1.1 * 1.3 * 1.5, 0.05);
  const ModelRecipe recipe = parse_model_recipe(summary.recipe, "recipe");
  EXPECT_EQ(recipe.threads, 1);
  EXPECT_EQ(recipe.choices.precision, DType::kBF16);
  EXPECT_EQ(recipe.choices.pick, KernelPick::kFirst);
  EXPECT_EQ(recipe.choices.kernels, (NamedKernels{{kPicked, "fast"}}));
  EXPECT_EQ(recipe.sizes, (Binding{{"T", 128}}));
  EXPECT_EQ(recipe.proven.config, model_hash(request_.model));
  EXPECT_THAT(recipe.proven.claim, HasSubstr("; ONNX Runtime was not measured"));
  EXPECT_GT(summary.result.p50_ms.value(), 0);
  EXPECT_GE(summary.result.p99_ms.value(), summary.result.p50_ms.value());
  EXPECT_DOUBLE_EQ(summary.result.first_ms.value(), 50);
  EXPECT_EQ(summary.result.measured_bytes, 5000);
  EXPECT_EQ(summary.guard.verdict, "passed");
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("ONNX Runtime was not measured")));
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("compared on 4 drawn samples")));
  // Every record follows from what it holds, and the proof can be proven again.
  for (const TrialRecord& record : result.trials)
    EXPECT_TRUE(contradictions(record,
                               [](std::string_view text) {
                                 return recipe_hash(text.empty()
                                                        ? ModelRecipe{}
                                                        : parse_model_recipe(text, "recipe"));
                               })
                    .empty())
        << record.technique;
  const TrialResult again = replay(result.trials.back(), *target_, 1e6, 1);
  ASSERT_TRUE(again.interval);
  EXPECT_LE(std::exp(again.interval->low), summary.claim.high);
  EXPECT_GE(std::exp(again.interval->high), summary.claim.low);
}

TEST_F(ModelLoop, WrongOutputsAreRefused) {
  model_.bf16_is_wrong = model_.one_thread_is_wrong = true;
  const OptimizeResult result = run();
  const auto found = verdicts(result);
  EXPECT_EQ(found.at("precision f32 -> bf16"), TrialVerdict::kGuardFailed);
  EXPECT_EQ(found.at("threads 2 -> 1"), TrialVerdict::kGuardFailed);
  EXPECT_NEAR(result.summary.claim.speedup, 1.3, 0.03);
  for (const TrialRecord& record : result.trials)
    if (record.change == "threads 2 -> 1") {
      EXPECT_EQ(record.guard, "output 'y' of sample 0 has other bits");
      EXPECT_TRUE(record.pairs.empty());  // nobody times it
    }
}

// The static form cannot be had within the limit here, and the dynamic one is in the recipe with
// its file. Its error is that of bytes, which the control of 16 bits would refuse.
TEST_F(ModelLoop, AQuantizedModelRunsInTheModelsPlace) {
  model_.quantized_off = 0.05;
  const OptimizeResult result = run();
  const auto found = verdicts(result);
  EXPECT_EQ(found.at("quantize f32 -> int8 (static)"), TrialVerdict::kFailed);
  EXPECT_EQ(found.at("quantize f32 -> int8 (dynamic)"), TrialVerdict::kKept);
  EXPECT_GT(result.summary.claim.speedup, 2);
  const ModelRecipe recipe = parse_model_recipe(result.summary.recipe, "recipe");
  EXPECT_EQ(recipe.quantized, "m.dynamic.onnx");
  const TempFolder other;
  target_->write_files(result.summary.recipe, other.path());
  EXPECT_EQ(recipe.files,
            (std::map<std::string, std::string>{
                {"m.dynamic.onnx", model_hash((other / "m.dynamic.onnx").string())}}));
}

TEST_F(ModelLoop, AQuantizedModelBeyondTheLimitIsRefused) {
  model_.quantized_off = 0.5;
  const OptimizeResult result = run();
  EXPECT_EQ(verdicts(result).at("quantize f32 -> int8 (dynamic)"), TrialVerdict::kGuardFailed);
  for (const TrialRecord& record : result.trials)
    if (record.change == "quantize f32 -> int8 (dynamic)") {
      EXPECT_THAT(record.guard, HasSubstr("% of its power, limit 1 %"));
    }
}

TEST_F(ModelLoop, NothingIsQuantizedByDrawnSamples) {
  EXPECT_EQ(verdicts(run()).at("quantize"), TrialVerdict::kNotTried);
}

TEST_F(ModelLoop, TheFasterOfBothIsTheBaseline) {
  model_.rival_seconds = 0.008;
  const OptimizeResult result = run();
  const OptimizeSummary& summary = result.summary;
  EXPECT_NEAR(summary.claim.speedup, 0.8 * 1.1 * 1.3 * 1.5, 0.04);
  EXPECT_EQ(summary.claim.than, "ONNX Runtime 9.8.7");
  EXPECT_THAT(optimize_text(summary, result.trials),
              HasSubstr("times as fast as ONNX Runtime 9.8.7\nProven in fresh processes, against "
                        "ONNX Runtime 9.8.7: "));
  EXPECT_EQ(summary.baseline.measured_bytes, 7000);
  EXPECT_DOUBLE_EQ(summary.baseline.first_ms.value(), 300);
  EXPECT_THAT(result.trials.back().recipe_before, HasSubstr("runtime = \"onnxruntime\""));
  EXPECT_THAT(parse_model_recipe(summary.recipe, "recipe").proven.claim,
              testing::Not(HasSubstr("not measured")));
}

TEST_F(ModelLoop, ASlowerRivalIsTold) {
  model_.rival_seconds = 0.02;
  const OptimizeResult result = run();
  EXPECT_NEAR(result.summary.claim.speedup, 1.1 * 1.3 * 1.5, 0.05);
  EXPECT_EQ(result.summary.claim.than, "");
  EXPECT_THAT(result.summary.parts,
              testing::Contains(HasSubstr("baseline: the session as it is, ")));
}

TEST_F(ModelLoop, ARivalThatStaysFasterIsRecommended) {
  model_.rival_seconds = 0.002;
  const OptimizeResult result = run();
  const OptimizeSummary& summary = result.summary;
  EXPECT_FALSE(summary.gained());
  EXPECT_THAT(summary.advice,
              testing::MatchesRegex("Use ONNX Runtime 9.8.7 for this model here: it is 2\\.[0-9]+ "
                                    "\\(2\\.[0-9]+ to 2\\.[0-9]+\\) times as fast as the fastest "
                                    "that Ridge has\\."));
  EXPECT_THAT(optimize_text(summary, result.trials), HasSubstr("No proven gain. Use ONNX Runtime"));
}

TEST_F(ModelLoop, NothingGainedIsASentence) {
  model_.bf16_is_wrong = model_.one_thread_is_wrong = true;
  machine_.may_time = false;
  const OptimizeResult result = run();
  EXPECT_FALSE(result.summary.gained());
  EXPECT_THAT(optimize_text(result.summary, result.trials),
              HasSubstr("No change beat the model as it is in paired runs"));
}

TEST_F(ModelLoop, ThroughputIsASample) {
  request_.is_throughput = true;
  model_.rival_seconds = 0.009;
  const OptimizeResult result = run();
  const OptimizeSummary& summary = result.summary;
  // The rival has runs of 16 rows.
  EXPECT_THAT(result.trials.back().recipe_before, HasSubstr("batch = 16"));
  EXPECT_EQ(summary.baseline.step_samples, 16);
  const ModelRecipe kept = parse_model_recipe(summary.recipe, "recipe");
  ASSERT_TRUE(kept.batch.has_value());
  EXPECT_EQ(summary.claim.per_sample, *kept.batch * kept.instances != 16);
  EXPECT_GT(summary.claim.speedup, 1.2);
}

}  // namespace
}  // namespace ridge::test
