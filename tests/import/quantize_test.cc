// Layers of quantized models, as exporters write them: integers between DequantizeLinear and
// QuantizeLinear, which are multiplied as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/source.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"

namespace ridge::test {
namespace {

constexpr int kUint8 = 2, kInt8 = 3;
constexpr int64_t kRows = 5, kDepth = 70, kColumns = 33;
constexpr float kScale = 0.02f, kResultScale = 0.11f;
constexpr int kZero = 120, kResultZero = -7;

// A linear layer behind one QuantizeLinear and before another, and what it has to give.
struct Layer {
  std::vector<float> x, scales, bias;
  std::vector<int8_t> weights;  // (kColumns, kDepth)

  explicit Layer(int64_t scale_count) {
    std::mt19937 random(3);
    const auto numbers = [&](int64_t count, float low, float high) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& v : values) v = std::uniform_real_distribution<float>(low, high)(random);
      return values;
    };
    x = numbers(kRows * kDepth, -2.5f, 2.8f);
    scales = numbers(scale_count, 0.001f, 0.01f);
    bias = numbers(kColumns, -1, 1);
    for (int64_t i = 0; i < kColumns * kDepth; ++i)
      weights.push_back(static_cast<int8_t>(random() % 256 - 128));
  }

  // The result before it is quantized, in f64.
  double exact(int64_t i, int64_t j, bool has_bias) const {
    int64_t sum = 0;
    for (int64_t p = 0; p < kDepth; ++p) {
      const float quotient = x[static_cast<size_t>(i * kDepth + p)] / kScale;
      const double byte = std::clamp(std::nearbyint(quotient) + kZero, 0.0f, 255.0f);
      sum += (static_cast<int64_t>(byte) - kZero) * weights[static_cast<size_t>(j * kDepth + p)];
    }
    const auto column = static_cast<size_t>(j);
    return static_cast<double>(sum) * kScale * scales[scales.size() > 1 ? column : 0] +
           (has_bias ? bias[column] : 0.0);
  }
};

std::string model_of_layer(const Layer& layer, bool is_gemm) {
  const auto scale_count = std::ssize(layer.scales);
  std::vector<int8_t> weights = layer.weights;
  if (!is_gemm)
    for (int64_t j = 0; j < kColumns; ++j)
      for (int64_t p = 0; p < kDepth; ++p)
        weights[static_cast<size_t>(p * kColumns + j)] =
            layer.weights[static_cast<size_t>(j * kDepth + p)];
  const std::vector<int64_t> shape =
      is_gemm ? std::vector{kColumns, kDepth} : std::vector{kDepth, kColumns};
  std::vector<ProtoBytes> nodes{
      node_bytes("QuantizeLinear", {"x", "s", "z"}, {"q"}),
      node_bytes("DequantizeLinear", {"q", "s", "z"}, {"d"}),
      node_bytes("DequantizeLinear", {"w", "sw"}, {"dw"}, {int_attribute("axis", is_gemm ? 0 : 1)}),
      is_gemm ? node_bytes("Gemm", {"d", "dw", "b"}, {"p"}, {int_attribute("transB", 1)})
              : node_bytes("MatMul", {"d", "dw"}, {"p"}),
      node_bytes("QuantizeLinear", {"p", "sy", "zy"}, {"r"}),
      node_bytes("DequantizeLinear", {"r", "sy", "zy"}, {"y"})};
  return model_bytes({.nodes = std::move(nodes),
                      .initializers = {floats_bytes("s", {}, {kScale}),
                                       tensor_bytes<uint8_t>("z", kUint8, {}, {kZero}),
                                       tensor_bytes("w", kInt8, shape, weights),
                                       floats_bytes("sw",
                                                    scale_count > 1 ? std::vector{scale_count}
                                                                    : std::vector<int64_t>{},
                                                    layer.scales),
                                       floats_bytes("b", {kColumns}, layer.bias),
                                       floats_bytes("sy", {}, {kResultScale}),
                                       tensor_bytes<int8_t>("zy", kInt8, {}, {kResultZero})},
                      .inputs = {value_bytes("x", kFloat, {kRows, kDepth})},
                      .outputs = {value_bytes("y", kFloat, {kRows, kColumns})}});
}

// Dtypes of the results of products of bytes, and how many products of floats there are.
struct Products {
  std::vector<DType> of_bytes;
  int of_floats = 0;
};

Products products_of(const Graph& graph) {
  Products found;
  for (const auto& node : graph.nodes()) {
    if (node->is<MatMulI8>()) found.of_bytes.push_back(node->op_as<MatMulI8>().to);
    if (node->is<Conv2dI8>()) found.of_bytes.push_back(node->op_as<Conv2dI8>().to);
    found.of_floats += node->is<MatMul>() ? 1 : 0;
  }
  return found;
}

void expect_layer(int64_t scale_count, bool is_gemm) {
  const Layer layer(scale_count);
  const OnnxModel model = model_of(model_of_layer(layer, is_gemm));
  const Products products = products_of(model.import().entries[0]);
  EXPECT_EQ(products.of_floats, 0);
  // The product in f32 is left to the pass that removes what nobody reads.
  EXPECT_EQ(products.of_bytes, (std::vector{DType::kF32, DType::kI8}));
  const Products written = products_of(model.import({}, {}, ConvNorms::kAsWritten).entries[0]);
  EXPECT_EQ(written.of_floats, 1);
  EXPECT_TRUE(written.of_bytes.empty());

  const std::vector<double> x(layer.x.begin(), layer.x.end());
  const NamedTensors outputs =
      run_model(model, {{"x", tensor_of({DType::kF32, {kRows, kDepth}}, x)}});
  const std::vector<double> y = elements_of(outputs.at("y"));
  const double low = (-128.0 - kResultZero) * kResultScale;
  const double high = (127.0 - kResultZero) * kResultScale;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      const double wanted = std::clamp(layer.exact(i, j, is_gemm), low, high);
      EXPECT_NEAR(y[static_cast<size_t>(i * kColumns + j)], wanted, kResultScale * 0.5001)
          << i << ", " << j;
    }
}

TEST(QuantizedLayer, GemmMultipliesBytes) {
  expect_layer(1, true);
  expect_layer(kColumns, true);
}

TEST(QuantizedLayer, MatMulMultipliesBytes) {
  expect_layer(1, false);
  expect_layer(kColumns, false);
}

// Windows of 3 by 3 every two pixels, with the border of the image beyond a zero point that is not
// 0.
TEST(QuantizedLayer, ConvolutionMultipliesBytes) {
  constexpr int64_t kIn = 5, kOut = 18, kSide = 7, kHalf = 4;
  std::mt19937 random(5);
  std::vector<uint8_t> x(kIn * kSide * kSide);
  std::vector<int8_t> w(kOut * kIn * 9);
  std::vector<float> scales(kOut), bias(kOut);
  for (uint8_t& v : x) v = static_cast<uint8_t>(random());
  for (int8_t& v : w) v = static_cast<int8_t>(random());
  for (float& v : scales) v = std::uniform_real_distribution<float>(0.001f, 0.01f)(random);
  for (float& v : bias) v = std::uniform_real_distribution<float>(-1, 1)(random);
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("DequantizeLinear", {"x", "s", "z"}, {"d"}),
                 node_bytes("DequantizeLinear", {"w", "sw"}, {"dw"}, {int_attribute("axis", 0)}),
                 node_bytes(
                     "Conv",
                     {"d", "dw", "b"},
                     {"p"},
                     {ints_attribute("pads", {1, 1, 1, 1}), ints_attribute("strides", {2, 2})}),
                 node_bytes("QuantizeLinear", {"p", "sy", "zy"}, {"r"}),
                 node_bytes("DequantizeLinear", {"r", "sy", "zy"}, {"y"})},
       .initializers = {floats_bytes("s", {}, {kScale}),
                        tensor_bytes<uint8_t>("z", kUint8, {}, {kZero}),
                        tensor_bytes("w", kInt8, {kOut, kIn, 3, 3}, w),
                        floats_bytes("sw", {kOut}, scales),
                        floats_bytes("b", {kOut}, bias),
                        floats_bytes("sy", {}, {kResultScale}),
                        tensor_bytes<int8_t>("zy", kInt8, {}, {kResultZero})},
       .inputs = {value_bytes("x", kUint8, {1, kIn, kSide, kSide})},
       .outputs = {value_bytes("y", kFloat, {1, kOut, kHalf, kHalf})}}));
  EXPECT_EQ(products_of(model.import().entries[0]).of_bytes,
            (std::vector{DType::kF32, DType::kI8}));
  const NamedTensors outputs = run_model(
      model,
      {{"x",
        tensor_of({DType::kU8, {1, kIn, kSide, kSide}}, std::vector<double>(x.begin(), x.end()))}});
  const std::vector<double> y = elements_of(outputs.at("y"));
  const auto sum_at = [&](int64_t o, int64_t row, int64_t column) {
    int64_t sum = 0;
    for (int64_t c = 0; c < kIn; ++c)
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 3; ++j) {
          const int64_t r = 2 * row + i - 1, q = 2 * column + j - 1;
          if (r < 0 || r >= kSide || q < 0 || q >= kSide) continue;
          sum += (x[static_cast<size_t>((c * kSide + r) * kSide + q)] - kZero) *
                 w[static_cast<size_t>(((o * kIn + c) * 3 + i) * 3 + j)];
        }
    return sum;
  };
  for (int64_t o = 0; o < kOut; ++o)
    for (int64_t row = 0; row < kHalf; ++row)
      for (int64_t column = 0; column < kHalf; ++column) {
        const auto channel = static_cast<size_t>(o);
        const double exact =
            static_cast<double>(sum_at(o, row, column)) * kScale * scales[channel] + bias[channel];
        const double wanted = std::clamp(
            exact, (-128.0 - kResultZero) * kResultScale, (127.0 - kResultZero) * kResultScale);
        EXPECT_NEAR(y[static_cast<size_t>((o * kHalf + row) * kHalf + column)],
                    wanted,
                    kResultScale * 0.5001);
      }
}

int64_t count_ops(const Graph& graph, std::string_view name) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == name;
  });
}

// The mean of the pixels of each channel, of (N, C, H, W) as it comes or behind a pooling of single
// pixels, which makes an image (N, H, W, C) of it.
void expect_means(ProtoBytes mean, bool is_pooled) {
  constexpr int64_t kImages = 2, kChannels = 5, kSide = 21;
  std::vector<ProtoBytes> nodes{node_bytes("DequantizeLinear", {"x", "s", "z"}, {"n"})};
  nodes.push_back(
      is_pooled ? node_bytes("MaxPool", {"n"}, {"d"}, {ints_attribute("kernel_shape", {1, 1})})
                : node_bytes("Identity", {"n"}, {"d"}));
  nodes.push_back(std::move(mean));
  const OnnxModel model = model_of(
      model_bytes({.nodes = std::move(nodes),
                   .initializers = {floats_bytes("s", {}, {kScale}),
                                    tensor_bytes<uint8_t>("z", kUint8, {}, {kZero})},
                   .inputs = {value_bytes("x", kUint8, {kImages, kChannels, kSide, kSide})},
                   .outputs = {value_bytes("y", kFloat, {kImages, kChannels, 1, 1})}}));
  EXPECT_EQ(count_ops(model.import().entries[0], "reduce_sum_i8"), 1);
  EXPECT_EQ(count_ops(model.import({}, {}, ConvNorms::kAsWritten).entries[0], "reduce_sum_i8"), 0);
  std::mt19937 random(9);
  std::vector<double> x(kImages * kChannels * kSide * kSide);
  for (double& each : x) each = static_cast<double>(random() % 256);
  const NamedTensors outputs =
      run_model(model, {{"x", tensor_of({DType::kU8, {kImages, kChannels, kSide, kSide}}, x)}});
  const std::vector<double> y = elements_of(outputs.at("y"));
  ASSERT_EQ(std::ssize(y), kImages * kChannels);
  for (size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < kSide * kSide; ++j) sum += x[i * kSide * kSide + j] - kZero;
    EXPECT_NEAR(y[i], sum * kScale / (kSide * kSide), 1e-6) << i;
  }
}

TEST(QuantizedLayer, MeansAddBytes) {
  for (const bool is_pooled : {false, true}) {
    expect_means(node_bytes("GlobalAveragePool", {"d"}, {"y"}), is_pooled);
    expect_means(node_bytes("ReduceMean", {"d"}, {"y"}, {ints_attribute("axes", {2, 3})}),
                 is_pooled);
  }
}

// Integers that are only taken apart and put together again stay as they are, whatever they are.
TEST(QuantizedLayer, IntegersThatComeAgainStay) {
  std::vector<double> q;
  for (int i = 0; i < 256; ++i) q.push_back(i);
  const auto model_with = [](float second) {
    return model_of(model_bytes({.nodes = {node_bytes("DequantizeLinear", {"x", "s", "z"}, {"d"}),
                                           node_bytes("QuantizeLinear", {"d", "t", "z"}, {"y"})},
                                 .initializers = {floats_bytes("s", {}, {0.07f}),
                                                  floats_bytes("t", {}, {second}),
                                                  tensor_bytes<uint8_t>("z", kUint8, {}, {131})},
                                 .inputs = {value_bytes("x", kUint8, {256})},
                                 .outputs = {value_bytes("y", kUint8, {256})}}));
  };
  const NamedTensors inputs{{"x", tensor_of({DType::kU8, {256}}, q)}};
  const OnnxModel same = model_with(0.07f), other = model_with(0.035f);
  const ProgramGraphs program = same.import();
  EXPECT_TRUE(program.entries[0].outputs()[0].value.node->is<Input>());
  EXPECT_EQ(elements_of(run_model(same, inputs).at("y")), q);
  const std::vector<double> twice = elements_of(run_model(other, inputs).at("y"));
  for (int i = 0; i < 256; ++i)
    EXPECT_EQ(twice[static_cast<size_t>(i)], std::clamp(131 + 2 * (i - 131), 0, 255)) << i;
}

}  // namespace
}  // namespace ridge::test
