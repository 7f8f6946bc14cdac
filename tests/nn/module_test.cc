// Names, declared parameters and first values; what models refuse.
#include "ridge/nn/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/nn/training.h"

namespace ridge::test {
namespace {

using nn::initial_value;
using nn::ModelOptions;
using nn::ParameterSpec;
using nn::SampleTypes;

struct Moments {
  double mean = 0.0, deviation = 0.0, largest = 0.0;
};

Moments moments_of(const Tensor& tensor) {
  Moments m;
  double squares = 0.0;
  const auto n = static_cast<double>(tensor.elements());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    m.mean += tensor.at(i) / n;
    squares += tensor.at(i) * tensor.at(i) / n;
    m.largest = std::max(m.largest, std::abs(tensor.at(i)));
  }
  m.deviation = std::sqrt(squares - m.mean * m.mean);
  return m;
}

std::vector<ParameterSpec> parameters_of(const ModelOptions& options, const SampleTypes& types) {
  return nn::Training(nn::make_model(options, types), {}).parameters();
}

const ParameterSpec& find(const std::vector<ParameterSpec>& specs, std::string_view name) {
  const auto it = std::ranges::find(specs, name, &ParameterSpec::name);
  if (it == specs.end()) throw std::out_of_range(std::string(name));
  return *it;
}

const SampleTypes kDigits{{DType::kF32, {28, 28}}, {DType::kI64, {}}};
const SampleTypes kTokens{{DType::kU16, {16}}, {DType::kU16, {16}}};

ModelOptions ten_outputs() {
  ModelOptions options;
  options.mlp.outputs = options.cnn.outputs = 10;
  return options;
}

TEST(Module, ScopesNameParametersAndSites) {
  Graph graph;
  nn::ModuleContext context(graph, DType::kF32, {true, 2});
  Value sum;
  {
    const nn::ModuleContext::Scope outer(context, "blocks.0");
    const nn::ModuleContext::Scope inner(context, "attn");
    const Value w = context.parameter("weight", {3, 4}, Initializer::ones());
    sum = w + w;
  }
  const Value shift = context.parameter("shift", {4}, Initializer::zeros());
  EXPECT_EQ(sum.node->site.name, "blocks.0.attn:add.0");
  EXPECT_EQ(shift.node->site.name, "shift");
  ASSERT_EQ(context.parameters().size(), 2u);
  EXPECT_EQ(context.parameters()[0].name, "blocks.0.attn.weight");
  EXPECT_TRUE(context.parameters()[0].decay);
  EXPECT_FALSE(context.parameters()[1].decay);
  EXPECT_EQ(graph.find_input("rng"), nullptr);
  EXPECT_EQ(context.rng(), context.rng());
  EXPECT_NE(graph.find_input("rng"), nullptr);
  EXPECT_THROW(context.parameter("shift", {4}, Initializer::zeros()), UserError);
}

// 20000 values: the mean of uniforms in [-b, b) has a deviation of b / sqrt(3 * 20000).
TEST(Module, FirstValuesHaveTheirDistribution) {
  const TensorType type{DType::kF64, {200, 100}};
  const Moments uniform = moments_of(initial_value({"a", type, Initializer::fan_in(16)}, 3));
  EXPECT_LE(uniform.largest, 0.25);
  EXPECT_GT(uniform.largest, 0.249);
  EXPECT_NEAR(uniform.mean, 0.0, 0.005);
  EXPECT_NEAR(uniform.deviation, 0.25 / std::sqrt(3.0), 0.003);
  const Moments normal = moments_of(initial_value({"a", type, Initializer::normal(0.02)}, 3));
  EXPECT_NEAR(normal.mean, 0.0, 0.0007);
  EXPECT_NEAR(normal.deviation, 0.02, 0.0005);
  EXPECT_GT(normal.largest, 0.06);
  EXPECT_EQ(moments_of(initial_value({"a", type, Initializer::ones()}, 3)).largest, 1.0);
}

TEST(Module, FirstValuesDependOnSeedAndNameAlone) {
  const TensorType type{DType::kF32, {5, 7}};
  const ParameterSpec a{"a", type, Initializer::normal(1.0)};
  const ParameterSpec b{"b", type, Initializer::normal(1.0)};
  EXPECT_TRUE(initial_value(a, 1).same_bits(initial_value(a, 1)));
  EXPECT_FALSE(initial_value(a, 1).same_bits(initial_value(a, 2)));
  EXPECT_FALSE(initial_value(a, 1).same_bits(initial_value(b, 1)));
  // The f32 value is the f64 one, rounded.
  ParameterSpec wide = a;
  wide.type.dtype = DType::kF64;
  const Tensor narrow = initial_value(a, 1), exact = initial_value(wide, 1);
  for (int64_t i = 0; i < narrow.elements(); ++i)
    EXPECT_EQ(narrow.at(i), static_cast<double>(static_cast<float>(exact.at(i))));
}

TEST(Module, LinearLayersStartByTheirFanIn) {
  ModelOptions options = ten_outputs();
  const auto specs = parameters_of(options, kDigits);
  ASSERT_EQ(specs.size(), 6u);
  EXPECT_EQ(find(specs, "layers.0.weight").type, (TensorType{DType::kF32, {784, 256}}));
  EXPECT_DOUBLE_EQ(find(specs, "layers.0.weight").init.scale, 1.0 / 28.0);
  EXPECT_DOUBLE_EQ(find(specs, "layers.0.bias").init.scale, 1.0 / 28.0);
  EXPECT_DOUBLE_EQ(find(specs, "head.weight").init.scale, 1.0 / 16.0);
  EXPECT_EQ(find(specs, "head.bias").init.kind, Initializer::Kind::kUniform);
}

TEST(Module, ConvolutionsAreHwioWithoutBiasBeforeANorm) {
  ModelOptions options = ten_outputs();
  options.kind = nn::ModelKind::kCnn;
  auto specs = parameters_of(options, kDigits);
  EXPECT_EQ(find(specs, "stem.conv.weight").type.shape, (Shape{3, 3, 1, 32}));
  EXPECT_DOUBLE_EQ(find(specs, "stem.conv.weight").init.scale, 1.0 / 3.0);
  EXPECT_EQ(find(specs, "stages.1.0.shortcut.conv.weight").type.shape, (Shape{1, 1, 32, 64}));
  EXPECT_THROW(find(specs, "stem.conv.bias"), std::out_of_range);
  EXPECT_THROW(find(specs, "stages.0.0.shortcut.conv.weight"), std::out_of_range);
  options.cnn.batch_norm = false;
  specs = parameters_of(options, kDigits);
  EXPECT_EQ(find(specs, "stem.conv.bias").type.shape, (Shape{32}));
  EXPECT_THROW(find(specs, "stem.norm.scale"), std::out_of_range);
}

// Numbers of parameters of torchvision 0.29, the stem of ResNet-18 replaced by a 3x3 convolution
// and nothing for small images: sum(p.numel() for p in model.parameters()).
TEST(Module, ImageModelsHaveTheSizeOfTorchvisions) {
  const auto count = [](const ModelOptions& options, const Shape& image) {
    int64_t elements = 0;
    for (const auto& spec : parameters_of(options, {{DType::kF32, image}, {DType::kI64, {}}}))
      elements += spec.type.elements();
    return elements;
  };
  ModelOptions options;
  options.kind = nn::ModelKind::kResNet18;
  options.resnet18.outputs = 10;
  EXPECT_EQ(count(options, {32, 32, 3}), 11173962);
  options.resnet18 = {.outputs = 1000, .stem = nn::Stem::kImageNet};
  EXPECT_EQ(count(options, {64, 64, 3}), 11689512);
  options.kind = nn::ModelKind::kMobileNetV2;
  options.mobilenetv2.outputs = 1000;
  EXPECT_EQ(count(options, {224, 224, 3}), 3504872);
  options.mobilenetv2.multiplier = 1.4;
  EXPECT_EQ(count(options, {96, 96, 3}), 6108776);
}

TEST(Module, ImageModelsStartByTheFanOut) {
  ModelOptions options;
  options.kind = nn::ModelKind::kMobileNetV2;
  options.mobilenetv2.outputs = 10;
  const auto specs = parameters_of(options, {{DType::kF32, {32, 32, 3}}, {DType::kI64, {}}});
  const ParameterSpec& depthwise = find(specs, "blocks.1.depthwise.conv.weight");
  EXPECT_EQ(depthwise.type.shape, (Shape{3, 3, 1, 96}));
  EXPECT_EQ(depthwise.init.kind, Initializer::Kind::kNormal);
  EXPECT_DOUBLE_EQ(depthwise.init.scale, std::sqrt(2.0 / (9.0 * 96.0)));
  EXPECT_DOUBLE_EQ(find(specs, "head.weight").init.scale, 0.01);
  EXPECT_THROW(find(specs, "blocks.0.expand.conv.weight"), std::out_of_range);
}

// A 124M GPT-2 has 124,439,808 parameters, as published: 12 layers, width 768, context 1024.
TEST(Module, GptHasThePublishedSize) {
  ModelOptions options = ten_outputs();
  options.kind = nn::ModelKind::kGpt;
  options.gpt = {50257, 1024, 12, 12, 768, 0.0};
  const auto specs = parameters_of(options, kTokens);
  int64_t elements = 0;
  for (const ParameterSpec& spec : specs) elements += spec.type.elements();
  EXPECT_EQ(elements, 124439808);
  EXPECT_DOUBLE_EQ(find(specs, "blocks.3.attn.qkv.weight").init.scale, 0.02);
  EXPECT_DOUBLE_EQ(find(specs, "blocks.3.attn.out.weight").init.scale, 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(find(specs, "blocks.3.mlp.down.weight").init.scale, 0.02 / std::sqrt(24.0));
  EXPECT_EQ(find(specs, "blocks.3.attn.out.bias").init.scale, 0.0);
  EXPECT_EQ(find(specs, "norm.scale").init.scale, 1.0);
}

// Graphs read what the sample holds: bytes and 16-bit ids are cast within.
TEST(Module, IntegerSamplesAreCast) {
  ModelOptions options = ten_outputs();
  const SampleTypes bytes{{DType::kU8, {28, 28, 1}}, {DType::kU8, {}}};
  for (const nn::ModelKind kind : {nn::ModelKind::kMlp, nn::ModelKind::kCnn}) {
    options.kind = kind;
    const nn::Training training(nn::make_model(options, bytes), {});
    EXPECT_EQ(training.micro(4).find_input("x")->outputs[0].dtype, DType::kU8);
  }
  options.kind = nn::ModelKind::kGpt;
  const nn::Training training(nn::make_model(options, kTokens), {});
  const Graph graph = training.logits(2);
  EXPECT_EQ(graph.outputs()[0].value.shape(), (Shape{2, 16, 256}));
  EXPECT_EQ(graph.find_input("y"), nullptr);
}

struct Refused {
  std::string name;
  void (*change)(ModelOptions&, SampleTypes&);
  std::string message;
};

class BadModel : public ::testing::TestWithParam<Refused> {};

TEST_P(BadModel, IsRefused) {
  ModelOptions options = ten_outputs();
  SampleTypes types = kDigits;
  GetParam().change(options, types);
  try {
    nn::make_model(options, types);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BadModel,
    ::testing::Values(
        Refused{"Dtype",
                [](ModelOptions& o, SampleTypes&) { o.dtype = DType::kI32; },
                "model: dtype must be a float; got i32"},
        Refused{"BoolLabels",
                [](ModelOptions&, SampleTypes& sample) { sample.y.dtype = DType::kBool; },
                "model: y must hold labels or floats; got bool"},
        Refused{"Hidden",
                [](ModelOptions& o, SampleTypes&) { o.mlp.hidden = {3, 0}; },
                "mlp: a hidden layer needs a width of at least 1; got 0"},
        Refused{"Outputs",
                [](ModelOptions& o, SampleTypes&) { o.mlp.outputs = 0; },
                "mlp: outputs must be at least 1; got 0"},
        Refused{"Dropout",
                [](ModelOptions& o, SampleTypes&) { o.mlp.dropout = 1.0; },
                "mlp: dropout out of range; got 1, expected 0 to below 1"},
        Refused{"Labels",
                [](ModelOptions&, SampleTypes& sample) { sample.y.shape = {2}; },
                "mlp: y must be one label a sample, or floats to predict; got i64[2]"},
        Refused{"Targets",
                [](ModelOptions&, SampleTypes& sample) { sample.y = {DType::kF32, {3}}; },
                "mlp: outputs must be the number of values to predict; got 10 for y f32[3]"},
        Refused{"Image",
                [](ModelOptions& o, SampleTypes& sample) {
                  o.kind = nn::ModelKind::kCnn;
                  sample.x.shape = {784};
                },
                "cnn: a sample must be an image (H, W, C) or (H, W); got f32[784]"},
        Refused{"SmallImage",
                [](ModelOptions& o, SampleTypes& sample) {
                  o.kind = nn::ModelKind::kCnn;
                  o.cnn.widths = {4, 8, 8};
                  sample.x.shape = {28, 3, 1};
                },
                "cnn: the image is too small for 3 stages, each of which but the first halves it, "
                "behind a stem of stride 1; got f32[28,3,1], expected at least 4x4"},
        Refused{"NoStages",
                [](ModelOptions& o, SampleTypes&) {
                  o.kind = nn::ModelKind::kCnn;
                  o.cnn.widths = {};
                },
                "cnn: widths is empty: give one number of channels a stage"},
        Refused{"Blocks",
                [](ModelOptions& o, SampleTypes&) {
                  o.kind = nn::ModelKind::kCnn;
                  o.cnn.blocks = 0;
                },
                "cnn: blocks out of range; got 0, expected 1 to 4096"},
        Refused{"Width",
                [](ModelOptions& o, SampleTypes&) {
                  o.kind = nn::ModelKind::kResNet18;
                  o.resnet18 = {.outputs = 10, .width = 0};
                },
                "resnet18: width out of range; got 0, expected 1 to 1048576"},
        Refused{"Multiplier",
                [](ModelOptions& o, SampleTypes&) {
                  o.kind = nn::ModelKind::kMobileNetV2;
                  o.mobilenetv2 = {.outputs = 10, .multiplier = 0.0};
                },
                "mobilenetv2: multiplier out of range; got 0, expected 0.01 to 100"},
        Refused{"Tokens",
                [](ModelOptions& o, SampleTypes&) { o.kind = nn::ModelKind::kGpt; },
                "gpt: a sample must be a row of token ids; got f32[28,28]"},
        Refused{"NextTokens",
                [](ModelOptions& o, SampleTypes& sample) {
                  o.kind = nn::ModelKind::kGpt;
                  sample = kTokens;
                  sample.y.shape = {};
                },
                "gpt: y must hold the id that follows each of x; got u16[] for u16[16]"},
        Refused{"Layers",
                [](ModelOptions& o, SampleTypes& sample) {
                  o.kind = nn::ModelKind::kGpt;
                  o.gpt.layers = int64_t{1} << 40;
                  sample = kTokens;
                },
                "gpt: layers out of range; got 1099511627776, expected 1 to 4096"},
        Refused{"Heads",
                [](ModelOptions& o, SampleTypes& sample) {
                  o.kind = nn::ModelKind::kGpt;
                  o.gpt.heads = 3;
                  sample = kTokens;
                },
                "gpt: heads must divide the width; got width 128 and 3 heads"},
        Refused{"Context",
                [](ModelOptions& o, SampleTypes& sample) {
                  o.kind = nn::ModelKind::kGpt;
                  o.gpt.context = 15;
                  sample = kTokens;
                },
                "gpt: a sample is longer than the context; got 16 tokens, expected at most 15"}),
    [](const auto& tested) { return tested.param.name; });

// Sizes whose product does not fit are refused where the parameter is declared.
TEST(Module, HugeSizesAreRefused) {
  ModelOptions options = ten_outputs();
  options.mlp.hidden = {int64_t{1} << 62};
  EXPECT_THROW(parameters_of(options, kDigits), UserError);
  options.kind = nn::ModelKind::kGpt;
  options.gpt.heads = 1;
  options.gpt.width = int64_t{1} << 62;
  EXPECT_THROW(parameters_of(options, kTokens), UserError);
  options.kind = nn::ModelKind::kCnn;
  options.cnn.widths = {int64_t{1} << 60, int64_t{1} << 60};
  EXPECT_THROW(parameters_of(options, kDigits), UserError);
  EXPECT_THROW(nn::Training(nn::make_model({}, kDigits), {}).logits(int64_t{1} << 60), UserError);
}

TEST(Module, BatchNormOfOneValueIsRefused) {
  ModelOptions options = ten_outputs();
  options.kind = nn::ModelKind::kCnn;
  options.cnn.widths = {4};
  const SampleTypes pixel{{DType::kF32, {1, 1, 3}}, {DType::kI64, {}}};
  const nn::Training training(nn::make_model(options, pixel), {});
  EXPECT_THROW(training.step(1), UserError);
  EXPECT_NO_THROW(training.step(2));
  EXPECT_NO_THROW(training.evaluation(1));
}

}  // namespace
}  // namespace ridge::test
