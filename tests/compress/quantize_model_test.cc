// Whole quantizations: what is chosen, what stays and why, and what is stated.
#include "ridge/compress/quantize_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/compress/calibration.h"
#include "ridge/compress/choose.h"
#include "ridge/compress/fold_norms.h"
#include "ridge/compress/static_form.h"
#include "ridge/export/onnx/onnx_export.h"
#include "ridge/import/onnx/onnx_source.h"
#include "tests/compress/small_models.h"
#include "tests/export/small_models.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using namespace compress;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr double kAny = 1e9;  // a limit that nothing exceeds

const SiteResult& site_of(const QuantizeResult& result, const std::string& name) {
  const auto found = std::ranges::find(result.sites, name, &SiteResult::name);
  EXPECT_NE(found, result.sites.end()) << name;
  return *found;
}

TEST(Quantize, AConvolutionalModel) {
  const EditableModel model = editable(model_bytes(conv_parts()));
  const QuantizeData data = normal_data({1, 3, 8, 8}, 24);
  const QuantizeResult result = quantize_model(model, data, {});
  EXPECT_EQ(result.folded_norms, 1);
  EXPECT_EQ(result.samples.calibrated, 12u);
  EXPECT_EQ(result.samples.chosen_by, 6u);
  EXPECT_EQ(result.samples.held_out, 6u);
  EXPECT_TRUE(result.samples.is_choice_apart);
  EXPECT_TRUE(result.passed()) << result.drop;
  EXPECT_GE(result.quantized(), 2u);
  EXPECT_GT(result.drop, 0);
  EXPECT_EQ(result.output, "y");
  // The statement is of the model that is handed over, on samples that calibration has not seen.
  std::vector<NamedTensors> held;
  for (size_t i = 3; i < data.samples.samples.size(); i += 4)
    held.push_back(data.samples.samples[i]);
  EXPECT_EQ(result.drop,
            100 * error_power(outputs_on(model, held), outputs_on(result.model, held)));
}

TEST(Quantize, AllSitesWhereTheLimitAllowsThem) {
  const QuantizeResult result = quantize_model(
      editable(model_bytes(conv_parts())), normal_data({1, 3, 8, 8}, 8), {.max_drop = kAny});
  EXPECT_EQ(result.quantized(), 4u);
  EXPECT_THAT(ops_of(result.model), AllOf(Contains("Conv"), Contains("Gemm"), Contains("Add")));
  EXPECT_EQ(result.model.constant("w4"), nullptr);
  ASSERT_NE(result.model.constant("w4_quantized"), nullptr);
  EXPECT_EQ(result.model.constant("w4_quantized")->data_type, 3);  // INT8
  EXPECT_EQ(result.model.outputs()[0].name, "y");
  const auto bytes = std::make_shared<const std::string>(result.model.bytes());
  EXPECT_EQ(to_string(OnnxModel(as_bytes(*bytes), bytes, "q").inputs().at(0)), "x f32[N,3,8,8]");
  EXPECT_LT(result.error_power, 0.02);
}

TEST(Quantize, DynamicTakesProductsAlone) {
  const QuantizeResult mlp = quantize_model(editable(model_bytes(mlp_parts())),
                                            normal_data({1, 16}, 16),
                                            {.method = QuantizeMethod::kDynamic, .max_drop = kAny});
  EXPECT_EQ(mlp.quantized(), 3u);
  EXPECT_THAT(
      ops_of(mlp.model),
      AllOf(Contains("MatMulInteger"), Contains("DynamicQuantizeLinear"), Not(Contains("Gemm"))));
  EXPECT_LT(mlp.error_power, 0.01);
  const QuantizeResult conv =
      quantize_model(editable(model_bytes(conv_parts())),
                     normal_data({1, 3, 8, 8}, 8),
                     {.method = QuantizeMethod::kDynamic, .max_drop = kAny});
  EXPECT_EQ(conv.quantized(), 1u);
  EXPECT_EQ(site_of(conv, "first").reason, "the dynamic method is for products alone");
}

TEST(Quantize, SharesTheBytesOfAnActivation) {
  const QuantizeResult result = quantize_model(
      editable(model_bytes(attention_parts())), normal_data({1, 6, 16}, 8), {.max_drop = kAny});
  EXPECT_EQ(result.quantized(), 4u);
  const std::vector<std::string> ops = ops_of(result.model);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "QuantizeLinear"), 2);
  EXPECT_EQ(site_of(result, "mix").reason, "its weights are no constant");
}

TEST(Quantize, OrderIsByGainForError) {
  const std::vector<SiteCost> costs = {{.error = 2, .gain = 4},
                                       {.error = 1, .gain = 8},
                                       {.error = 0, .gain = 1},
                                       {.error = 2, .gain = 4}};
  EXPECT_EQ(order_by_gain(costs), (std::vector<size_t>{2, 1, 0, 3}));
}

TEST(Quantize, MostWithinALimitIsFoundByBisection) {
  for (size_t count = 0; count < 20; ++count)
    for (size_t most = 0; most <= count; ++most) {
      int calls = 0;
      const auto drop = [&](size_t sites) {
        ++calls;
        return sites <= most ? 1.0 : 2.0;
      };
      EXPECT_EQ(most_within(count, 1, drop), most);
      EXPECT_LE(calls, 6);
    }
}

TEST(Quantize, LeavesSitesThatTheLimitForbids) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeData data = normal_data({1, 16}, 16);
  const QuantizeResult all = quantize_model(model, data, {.max_drop = kAny});
  ASSERT_EQ(all.quantized(), 3u);
  const QuantizeResult some = quantize_model(model, data, {.max_drop = all.drop * 0.2});
  EXPECT_LT(some.quantized(), 3u);
  EXPECT_LE(some.drop, all.drop);
  const SiteResult& last = some.sites[2];
  EXPECT_FALSE(last.is_quantized);
  EXPECT_THAT(last.reason, HasSubstr("sites in order the drop is"));
  const QuantizeResult none = quantize_model(model, data, {.max_drop = 0});
  EXPECT_EQ(none.quantized(), 0u);
  EXPECT_FALSE(none.passed());
}

TEST(Quantize, TimesDecideTheOrderAndWhatStays) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeData data = normal_data({1, 16}, 8);
  const QuantizeResult timed =
      quantize_model(model,
                     data,
                     {.max_drop = kAny,
                      .gain = GainMeasure::kTime,
                      .times = {{"h1", {2e-6, 1e-6}}, {"h2", {3e-6, 3e-6}}, {"y", {2, 1}}}});
  EXPECT_EQ(timed.quantized(), 2u);
  EXPECT_EQ(timed.sites[0].name, "third");
  EXPECT_EQ(timed.sites[0].time->gain(), 1);
  EXPECT_EQ(site_of(timed, "second").reason, "3 us in bytes, 3 as it is");
  ASSERT_TRUE(timed.time.has_value());
  EXPECT_GT(timed.time->in_bytes, 0);
  const QuantizeResult by_flops = quantize_model(model, data, {.max_drop = kAny});
  EXPECT_EQ(site_of(by_flops, "second").flops, 2 * 24 * 24);
  EXPECT_FALSE(by_flops.time.has_value());
}

TEST(Quantize, SitesThatAreKept) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeResult result =
      quantize_model(model, normal_data({1, 16}, 8), {.max_drop = kAny, .keep = {"second"}});
  EXPECT_EQ(result.quantized(), 2u);
  EXPECT_EQ(site_of(result, "second").reason, "--keep names it");
  EXPECT_NE(result.model.constant("w2"), nullptr);
  EXPECT_THAT(
      user_error([&] { quantize_model(model, normal_data({1, 16}, 8), {.keep = {"secand"}}); }),
      AllOf(HasSubstr("'secand'"), HasSubstr("did you mean 'second'?")));
}

TEST(Quantize, LabelsDecideByAccuracy) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  QuantizeData data = normal_data({1, 16}, 32);
  for (const NamedTensors& outputs : outputs_on(model, data.samples.samples)) {
    const std::span<const float> y = outputs.at("y").span<float>();
    data.labels.push_back(std::max_element(y.begin(), y.end()) - y.begin());
  }
  const QuantizeResult result = quantize_model(model, data, {.max_drop = 20});
  ASSERT_TRUE(result.before.has_value() && result.after.has_value());
  EXPECT_EQ(result.before->accuracy, 1);
  EXPECT_NEAR(result.drop, 100 * (1 - result.after->accuracy), 1e-9);
  EXPECT_EQ(quantize_model(model, data, {.keep = {"first", "second"}}).limit, 0.5);
  data.labels[3] = 4;
  EXPECT_THAT(user_error([&] { quantize_model(model, data, {}); }),
              HasSubstr("label 4 of sample 3 is none of 4 classes"));
}

TEST(Quantize, CorrectedBiasesKeepTheMeans) {
  // Weights that all round to the same side, on inputs whose mean is far from zero.
  GraphParts parts;
  std::vector<float> weights(16 * 4);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = i < 4 ? 1.27f : 0.0133f;
  parts.initializers = {floats_bytes("w", {16, 4}, weights), floats_bytes("b", {4}, {1, 2, 3, 4})};
  parts.nodes = {node_bytes("Gemm", {"x", "w", "b"}, {"y"}, {}, "site")};
  parts.inputs = {value_bytes("x", kFloat, {"N", 16})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 4})};
  const EditableModel model = editable(model_bytes(parts));
  QuantizeData data = normal_data({1, 16}, 64);
  for (NamedTensors& sample : data.samples.samples)
    for (float& x : sample.at("x").span<float>()) x += 5;
  const auto mean_off = [&](bool corrects) {
    const QuantizeResult result =
        quantize_model(model, data, {.correct_bias = corrects, .max_drop = kAny});
    const SampleOutputs wanted = outputs_on(model, data.samples.samples);
    const SampleOutputs got = outputs_on(result.model, data.samples.samples);
    double off = 0;
    for (size_t s = 0; s < wanted.size(); ++s)
      off += got[s].at("y").at(0) - wanted[s].at("y").at(0);
    return std::abs(off / static_cast<double>(wanted.size()));
  };
  EXPECT_GT(mean_off(false), 0.2);
  EXPECT_LT(mean_off(true), 0.02);
}

TEST(Quantize, RangesAndBiasesAreThoseOfTheLeastError) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const EditableModel model = editable(model_bytes(conv_parts(seed)));
    const QuantizeData data = normal_data({1, 3, 8, 8}, 24, seed);
    const QuantizeResult result = quantize_model(model, data, {.max_drop = kAny});
    ASSERT_EQ(result.tried.size(), 4u);
    const TriedForm& least = *std::ranges::min_element(result.tried, {}, &TriedForm::error);
    EXPECT_EQ(result.ranges, least.ranges);
    EXPECT_EQ(result.corrects_bias, least.corrects_bias);
    std::vector<NamedTensors> chosen_by;
    for (size_t i = 1; i < data.samples.samples.size(); i += 4)
      chosen_by.push_back(data.samples.samples[i]);
    for (const TriedForm& way : result.tried) {
      const QuantizeResult asked = quantize_model(
          model, data, {.ranges = way.ranges, .correct_bias = way.corrects_bias, .max_drop = kAny});
      EXPECT_TRUE(asked.tried.empty());
      EXPECT_EQ(way.error,
                error_power(outputs_on(model, chosen_by), outputs_on(asked.model, chosen_by)));
      if (&way != &least) continue;
      EXPECT_TRUE(asked.model.bytes() == result.model.bytes()) << seed;
    }
  }
}

TEST(Quantize, WhatTheOptionsLeaveOpenIsTried) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeData data = normal_data({1, 16}, 8);
  const auto tried = [&](QuantizeOptions options) {
    options.max_drop = kAny;
    return quantize_model(model, data, options).tried;
  };
  EXPECT_EQ(tried({.ranges = RangeMethod::kMse}).size(), 2u);
  EXPECT_EQ(tried({.correct_bias = true}).size(), 3u);
  // Scales of activations are each run's own there, and biases stay floats.
  const std::vector<TriedForm> dynamic = tried({.method = QuantizeMethod::kDynamic});
  ASSERT_EQ(dynamic.size(), 2u);
  EXPECT_EQ(dynamic[1].ranges, RangeMethod::kMse);
}

// Models that Ridge trains, as its exporter writes them.
TEST(Quantize, ExportedModels) {
  for (const char* name : {"mlp", "cnn", "resnet18"}) {
    const TempFolder folder;
    const SmallModel small = small_model(name);
    export_onnx(*small.source, small.weights(), {}, folder / "model.onnx", {});
    const EditableModel model(folder / "model.onnx");
    const OnnxSource source{OnnxModel(folder / "model.onnx")};
    const QuantizeData data{.samples = drawn_samples(source, {}, 6)};
    const QuantizeResult result = quantize_model(model, data, {.max_drop = kAny});
    EXPECT_EQ(result.quantized(), result.sites.size()) << name;
    EXPECT_LT(result.error_power, 0.05) << name;
  }
}

// ---- edges ----

TEST(QuantizeEdges, AModelThatIsQuantizedAlready) {
  const QuantizeData data = normal_data({1, 16}, 4);
  const QuantizeResult once =
      quantize_model(editable(model_bytes(mlp_parts())), data, {.max_drop = kAny});
  EXPECT_THAT(user_error([&] { quantize_model(once.model, data, {}); }),
              HasSubstr("the model is quantized already"));
}

TEST(QuantizeEdges, AnOlderOpset) {
  const EditableModel model = editable(model_bytes(mlp_parts(), 12));
  const QuantizeData data = normal_data({1, 16}, 4);
  EXPECT_THAT(user_error([&] { quantize_model(model, data, {}); }),
              HasSubstr("of version 12; the static form needs 13 or later"));
  EXPECT_EQ(quantize_model(model, data, {.method = QuantizeMethod::kDynamic, .max_drop = kAny})
                .quantized(),
            3u);
}

TEST(QuantizeEdges, NoSite) {
  GraphParts parts;
  parts.nodes = {node_bytes("MatMul", {"x", "x"}, {"y"}, {}, "square")};
  parts.inputs = {value_bytes("x", kFloat, {4, 4})};
  parts.outputs = {value_bytes("y", kFloat, {4, 4})};
  EXPECT_THAT(
      user_error([&] { quantize_model(editable(model_bytes(parts)), normal_data({4, 4}, 2), {}); }),
      HasSubstr("no node can be quantized; square (MatMul): its weights are no constant"));
}

TEST(QuantizeEdges, ASingleSample) {
  const QuantizeResult result = quantize_model(
      editable(model_bytes(mlp_parts())), normal_data({1, 16}, 1), {.max_drop = kAny});
  EXPECT_FALSE(result.samples.is_held_out_apart);
  EXPECT_FALSE(result.samples.is_choice_apart);
  EXPECT_EQ(result.samples.held_out, 1u);
  EXPECT_EQ(result.quantized(), 3u);
}

TEST(QuantizeEdges, NaNInCalibration) {
  GraphParts parts = mlp_parts();
  // The square root of negative numbers: "third" alone reads it.
  parts.nodes[3] = node_bytes("Sqrt", {"h2"}, {"r2"});
  const QuantizeResult result =
      quantize_model(editable(model_bytes(parts)), normal_data({1, 16}, 4), {.max_drop = kAny});
  EXPECT_EQ(site_of(result, "third").reason, "its input has NaN or infinity in sample 0");
  EXPECT_EQ(result.quantized(), 2u);
}

TEST(QuantizeEdges, ConstantActivationsAndChannelsOfZeros) {
  GraphParts parts = mlp_parts();
  std::vector<float> weights(16 * 24, 0.f);
  weights[3] = 0.7f;  // of channel 3; all others are zeros
  parts.initializers[0] = floats_bytes("w1", {16, 24}, weights);
  QuantizeData data = normal_data({1, 16}, 6);
  for (NamedTensors& sample : data.samples.samples)
    std::ranges::fill(sample.at("x").span<float>(), 2.5f);
  const QuantizeResult result =
      quantize_model(editable(model_bytes(parts)), data, {.max_drop = kAny});
  EXPECT_EQ(result.quantized(), 3u);
  EXPECT_LT(result.error_power, 0.01);
}

TEST(QuantizeEdges, SharedWeights) {
  GraphParts parts = mlp_parts();
  parts.nodes[2] = node_bytes("MatMul", {"r1", "w2"}, {"h2"}, {}, "second");
  parts.nodes[4] = node_bytes("MatMul", {"r2", "w2"}, {"y"}, {}, "third");
  parts.outputs = {value_bytes("y", kFloat, {"N", 24})};
  const QuantizeResult result =
      quantize_model(editable(model_bytes(parts)), normal_data({1, 16}, 48), {.max_drop = kAny});
  EXPECT_EQ(result.quantized(), 3u);
  EXPECT_NE(result.model.constant("w2_quantized"), nullptr);
  EXPECT_EQ(result.model.constant("w2_quantized_2"), nullptr);
  for (const SiteResult& site : result.sites) EXPECT_LT(site.error.value(), 0.01) << site.name;
  EXPECT_LT(result.error_power, 0.01);
}

TEST(QuantizeEdges, OtherDTypes) {
  GraphParts parts;
  const std::vector<uint16_t> ones(16, 0x3c00);  // 1 in f16
  constexpr int kFloat16 = 10;
  parts.initializers = {tensor_bytes("w", kFloat16, {4, 4}, ones)};
  parts.nodes = {node_bytes("Cast", {"x"}, {"h"}, {int_attribute("to", kFloat16)}),
                 node_bytes("MatMul", {"h", "w"}, {"y"}, {}, "half")};
  parts.inputs = {value_bytes("x", kFloat, {"N", 4})};
  parts.outputs = {value_bytes("y", kFloat16, {"N", 4})};
  EXPECT_THAT(
      user_error([&] { quantize_model(editable(model_bytes(parts)), normal_data({1, 4}, 2), {}); }),
      HasSubstr("half (MatMul): its weights are of FLOAT16"));
}

}  // namespace
}  // namespace ridge::test
