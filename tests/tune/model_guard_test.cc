// The guard of models refuses wrong kernels, layouts and folded norms, and lets through what only
// rounds otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridge/import/onnx/onnx_source.h"
#include "ridge/run/program.h"
#include "ridge/tune/onnx/model_variant.h"
#include "ridge/tune/onnx/output_guard.h"
#include "ridge/tune/onnx/wide_source.h"
#include "tests/support/spoiled_backend.h"
#include "tests/tune/faulty_models.h"

namespace ridge::test {
namespace {

constexpr size_t kSamples = 8;

std::shared_ptr<const ModelSource> source_of(const std::string& bytes,
                                             ConvNorms norms = ConvNorms::kFolded) {
  const auto kept = std::make_shared<const std::string>(bytes);
  return std::make_shared<const OnnxSource>(OnnxModel(as_bytes(*kept), kept, "model"), norms);
}

LoadedModel loaded(std::shared_ptr<const ModelSource> source,
                   std::unique_ptr<Backend> backend = make_backend("cpu")) {
  return {.source = std::move(source), .state = make_state(std::move(backend)), .weights = "test"};
}

// One model with its truth, against which candidates are judged.
class GuardedModel {
 public:
  explicit GuardedModel(std::string bytes)
      : bytes_(std::move(bytes)),
        samples_(drawn_samples(*source_of(bytes_), {}, kSamples)),
        oracle_(wide_outputs(std::nullopt)),
        control_(wide_outputs(DType::kBF16)),
        reference_(outputs_of(loaded(source_of(bytes_)), {})) {}

  GuardOutcome judge(const SampleOutputs& candidate, SemanticClass semantic_class) const {
    return judge_outputs(
        {.oracle = oracle_, .reference = reference_, .candidate = candidate, .control = &control_},
        semantic_class,
        "samples");
  }
  /// The model's own session with that recipe.
  GuardOutcome judge(const ModelRecipe& recipe, SemanticClass semantic_class) const {
    return judge(outputs_of(loaded(source_of(bytes_)), recipe), semantic_class);
  }
  /// Whether it is refused in both classes, in the second with products of bf16.
  void expect_refused(const std::string& bytes) const {
    ModelRecipe bf16;
    bf16.choices.precision = DType::kBF16;
    const GuardOutcome order =
        judge(outputs_of(loaded(source_of(bytes)), {}), SemanticClass::kReassociation);
    EXPECT_FALSE(order.passed) << order.text;
    EXPECT_TRUE(order.can_tell);
    const GuardOutcome digits =
        judge(outputs_of(loaded(source_of(bytes)), bf16), SemanticClass::kPrecision);
    EXPECT_FALSE(digits.passed) << digits.text;
  }
  SampleOutputs outputs_of(LoadedModel model, const ModelRecipe& recipe) const {
    return ModelVariant([&] { return model; }, recipe, samples_).outputs(kSamples);
  }
  const std::string& bytes() const { return bytes_; }
  const SampleOutputs& reference() const { return reference_; }

 private:
  SampleOutputs wide_outputs(std::optional<DType> operands) const {
    auto wide =
        std::make_shared<const WideSource>(source_of(bytes_, ConvNorms::kAsWritten), operands);
    return outputs_of(loaded(std::move(wide)), recipe_for(ModelRole::kOracle, {}));
  }

  std::string bytes_;
  ModelSamples samples_;
  SampleOutputs oracle_, control_, reference_;
};

const GuardedModel& conv() {
  static const GuardedModel model(conv_model());
  return model;
}
const GuardedModel& attention() {
  static const GuardedModel model(attention_model());
  return model;
}

// ---- what is right passes ----

TEST(ModelGuard, TheSessionAsItIsPasses) {
  for (const GuardedModel* model : {&conv(), &attention()}) {
    const GuardOutcome outcome = model->judge(model->reference(), SemanticClass::kReassociation);
    EXPECT_TRUE(outcome.passed) << outcome.text;
    EXPECT_NE(outcome.text.find("outputs of samples: off f64 by "), std::string::npos);
  }
}

TEST(ModelGuard, OtherKernelsAndPassesPass) {
  for (const GuardedModel* model : {&conv(), &attention()}) {
    std::vector<ModelRecipe> recipes(4);
    recipes[0].choices.kernels_off = {"winograd"};
    recipes[1].choices.kernels_off = {"gemm", "depthwise", "winograd"};
    recipes[2].choices.passes_off = {"fuse_loops", "fuse_epilogues"};
    recipes[3].choices.passes_off = {"recognize_attention", "recognize_norms"};
    for (const ModelRecipe& recipe : recipes) {
      const GuardOutcome outcome = model->judge(recipe, SemanticClass::kReassociation);
      EXPECT_TRUE(outcome.passed) << outcome.text << "\n" << to_toml(recipe);
    }
  }
}

TEST(ModelGuard, SixteenBitsPassInTheirClassAlone) {
  ModelRecipe recipe;
  recipe.choices.precision = DType::kBF16;
  for (const GuardedModel* model : {&conv(), &attention()}) {
    const GuardOutcome digits = model->judge(recipe, SemanticClass::kPrecision);
    EXPECT_TRUE(digits.passed) << digits.text;
    EXPECT_FALSE(model->judge(recipe, SemanticClass::kReassociation).passed);
  }
}

TEST(ModelGuard, BatchesAndInstancesKeepTheBits) {
  for (const GuardedModel* model : {&conv(), &attention()}) {
    ModelRecipe recipe;
    recipe.batch = 3;
    recipe.instances = 2;
    const GuardOutcome outcome = compare_outputs(
        model->outputs_of(loaded(source_of(model->bytes())), recipe), model->reference());
    EXPECT_TRUE(outcome.passed) << outcome.text;
  }
}

// ---- the mutants ----

TEST(ModelMutants, AConvolutionLosesItsLastTap) {
  conv().expect_refused(conv_model({.loses_tap = true}));
}

TEST(ModelMutants, AConvolutionRepeatsAChannelAtItsTail) {
  conv().expect_refused(conv_model({.repeats_tail = true}));
}

TEST(ModelMutants, WeightsAreReadWithHeightAndWidthSwapped) {
  conv().expect_refused(conv_model({.swaps_taps = true}));
}

TEST(ModelMutants, WeightsAreReadWithTheirChannelsSwapped) {
  conv().expect_refused(conv_model({.reads_as_iohw = true}));
}

TEST(ModelMutants, HeadsAreReadInterleaved) { attention().expect_refused(attention_model(true)); }

// Its numbers change by a thousandth, which 16 bits hide.
TEST(ModelMutants, AFoldedNormForgetsEpsilon) {
  const GuardOutcome outcome =
      conv().judge(conv().outputs_of(loaded(source_of(conv_model({.forgets_epsilon = true}))), {}),
                   SemanticClass::kReassociation);
  EXPECT_FALSE(outcome.passed) << outcome.text;
}

TEST(ModelMutants, AFoldedNormDividesByTheVariance) {
  conv().expect_refused(conv_model({.forgets_root = true}));
}

TEST(ModelMutants, AFoldedNormAddsTheMean) {
  conv().expect_refused(conv_model({.adds_mean = true}));
}

// A kernel of the last product that is wrong in one element, a little or not a number.
TEST(ModelMutants, AKernelIsWrongInOneElement) {
  const auto is_last = [](const Node& node) {
    return node.outputs[0].dtype == DType::kF32 && node.outputs[0].shape == Shape{1, 10};
  };
  for (const float factor : {0.0f, 1.001f, std::nanf("")}) {
    auto backend = std::make_unique<SpoiledBackend>(
        is_last, [factor](std::span<float> result) { result.back() *= factor; });
    const SampleOutputs outputs =
        conv().outputs_of(loaded(source_of(conv().bytes()), std::move(backend)), {});
    const GuardOutcome outcome = conv().judge(outputs, SemanticClass::kReassociation);
    EXPECT_FALSE(outcome.passed) << factor << ": " << outcome.text;
    EXPECT_FALSE(compare_outputs(outputs, conv().reference()).passed);
  }
}

// ---- outputs that are made up ----

SampleOutputs floats(const std::vector<double>& values, DType dtype = DType::kF32) {
  Tensor tensor({dtype, {std::ssize(values)}});
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  SampleOutputs outputs(1);
  outputs[0].emplace("y", std::move(tensor));
  return outputs;
}

TEST(JudgeOutputs, InfinitiesAreThoseOfTheSessionAsItIs) {
  const SampleOutputs oracle = floats({1e300, 2}, DType::kF64);
  const SampleOutputs reference = floats({INFINITY, 2});
  const auto passes = [&](const SampleOutputs& candidate) {
    return judge_outputs({.oracle = oracle, .reference = reference, .candidate = candidate},
                         SemanticClass::kReassociation,
                         "a sample")
        .passed;
  };
  EXPECT_TRUE(passes(reference));
  EXPECT_FALSE(passes(floats({-INFINITY, 2})));
  EXPECT_FALSE(passes(floats({INFINITY, NAN})));
  EXPECT_FALSE(passes(floats({INFINITY, 2.01})));
}

TEST(JudgeOutputs, IntegersAreThoseOfF64WhereTheSessionHasThem) {
  const SampleOutputs oracle = floats({3, 7, 9}, DType::kI64);
  const SampleOutputs reference = floats({3, 7, 8}, DType::kI64);
  const auto judge = [&](const SampleOutputs& candidate) {
    return judge_outputs({.oracle = oracle, .reference = reference, .candidate = candidate},
                         SemanticClass::kReassociation,
                         "a sample");
  };
  EXPECT_TRUE(judge(reference).passed);
  EXPECT_TRUE(judge(oracle).passed);
  EXPECT_EQ(judge(floats({3, 6, 8}, DType::kI64)).text,
            "2 of 3 elements of output 'y' of sample 0 are others than in f64");
}

// Quotients in f64 differ from those in f32; the integers that they are rounded to are the same.
TEST(WideSource, QuantizeLinearStillRounds) {
  constexpr int kInt8 = 3;
  std::vector<float> x;
  std::vector<int> wanted;
  for (int i = -200; i < 200; ++i) {
    x.push_back(static_cast<float>(i) * 0.3f + 0.01f);
    wanted.push_back(std::clamp(static_cast<int>(std::nearbyint(x.back() / 0.7)) - 9, -128, 127));
  }
  const auto source =
      source_of(model_bytes({.nodes = {node_bytes("QuantizeLinear", {"x", "s", "z"}, {"y"})},
                             .initializers = {floats_bytes("s", {}, {0.7f}),
                                              tensor_bytes<int8_t>("z", kInt8, {}, {-9})},
                             .inputs = {value_bytes("x", kFloat, {400})},
                             .outputs = {value_bytes("y", kInt8, {400})}}),
                ConvNorms::kAsWritten);
  const auto cpu = make_backend("cpu");
  State state(*cpu);
  Program program(WideSource(source).bind({}), state);
  program.write(program.input(0, "x"), x.data());
  program.run(0);
  std::vector<int8_t> y(x.size());
  program.read(program.output(0, "y"), y.data());
  program.synchronize();
  EXPECT_EQ(std::vector<int>(y.begin(), y.end()), wanted);
}

TEST(JudgeOutputs, ABiasThatTheErrorsHideShowsInTheSlope) {
  std::vector<double> exact, rounded, grown;
  for (int i = 0; i < 4000; ++i) {
    const double value = std::sin(i);
    exact.push_back(value);
    rounded.push_back(value * (1 + 0.02 * std::sin(7.0 * i)));
    grown.push_back(value * (1.015 + 0.02 * std::sin(7.0 * i)));
  }
  const SampleOutputs oracle = floats(exact, DType::kF64), control = floats(rounded);
  const SampleOutputs reference = floats(exact);
  const auto judge = [&](const SampleOutputs& candidate) {
    return judge_outputs(
        {.oracle = oracle, .reference = reference, .candidate = candidate, .control = &control},
        SemanticClass::kPrecision,
        "a sample");
  };
  EXPECT_TRUE(judge(control).passed) << judge(control).text;
  EXPECT_FALSE(judge(floats(grown)).passed);
}

}  // namespace
}  // namespace ridge::test
