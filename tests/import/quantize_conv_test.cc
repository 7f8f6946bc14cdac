// Convolutions of quantized models and the activations behind them: the same integers as node by
// node in f32 where that is exact, and as those of ONNX Runtime.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <vector>

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/conv_i8.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

constexpr int kUint8 = 2, kInt8 = 3;
constexpr int64_t kIn = 6, kSide = 9;

// All scales are powers of two and all sums are short, so that f32 rounds nothing before the last
// step. Windows of 3 by 2 are transformed by no kernel.
std::string model_of_convolution(int64_t groups,
                                 int64_t out,
                                 std::vector<ProtoBytes> activations,
                                 int64_t opset = 17) {
  std::mt19937 random(static_cast<uint32_t>(7 + groups));
  std::vector<int8_t> w(static_cast<size_t>(out * kIn / groups * 6));
  std::vector<float> scales, bias;
  for (int8_t& v : w) v = static_cast<int8_t>(random());
  for (int64_t o = 0; o < out; ++o) {
    scales.push_back(1.0f / static_cast<float>(512 << o % 3));
    bias.push_back(static_cast<float>(static_cast<int>(random() % 4000) - 2000) / 512.0f);
  }
  std::vector<ProtoBytes> nodes{
      node_bytes("DequantizeLinear", {"x", "s", "z"}, {"d"}),
      node_bytes("DequantizeLinear", {"w", "sw"}, {"dw"}, {int_attribute("axis", 0)}),
      node_bytes("Conv",
                 {"d", "dw", "b"},
                 {"p"},
                 {ints_attribute("pads", {1, 1, 0, 1}),
                  ints_attribute("strides", {2, 1}),
                  int_attribute("group", groups)})};
  for (ProtoBytes& activation : activations) nodes.push_back(std::move(activation));
  nodes.push_back(node_bytes("QuantizeLinear", {"a", "sy", "zy"}, {"y"}));
  return model_bytes({.nodes = std::move(nodes),
                      .initializers = {floats_bytes("s", {}, {1.0f / 32}),
                                       tensor_bytes<uint8_t>("z", kUint8, {}, {120}),
                                       tensor_bytes("w", kInt8, {out, kIn / groups, 3, 2}, w),
                                       floats_bytes("sw", {out}, scales),
                                       floats_bytes("b", {out}, bias),
                                       floats_bytes("sy", {}, {0.25f}),
                                       tensor_bytes<int8_t>("zy", kInt8, {}, {-7}),
                                       floats_bytes("zero", {}, {0.0f}),
                                       floats_bytes("two", {}, {2.0f}),
                                       floats_bytes("minus", {}, {-2.6f}),
                                       floats_bytes("six", {}, {6.0f})},
                      .inputs = {value_bytes("x", kUint8, {2, kIn, kSide, kSide})},
                      .outputs = {value_bytes("y", kInt8, {2, out, 4, 10})}},
                     opset);
}

NamedTensors image_at_random() {
  std::mt19937 random(11);
  std::vector<double> x;
  for (int64_t i = 0; i < 2 * kIn * kSide * kSide; ++i)
    x.push_back(static_cast<double>(random() % 256));
  return {{"x", tensor_of({DType::kU8, {2, kIn, kSide, kSide}}, x)}};
}

// The limits of the convolution whose results are bytes; there is one.
std::vector<int64_t> limits_in(const Graph& graph) {
  std::vector<std::vector<int64_t>> found;
  for (const auto& node : graph.nodes())
    if (node->is<Conv2dI8>() && node->op_as<Conv2dI8>().is_rounded())
      found.push_back(node->op_as<Conv2dI8>().limits);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? std::vector<int64_t>{} : found[0];
}

// The model gives the integers that its nodes give one by one, and the convolution has the limits.
void expect_limits(const std::string& bytes, const std::vector<int64_t>& limits) {
  const OnnxModel model = model_of(bytes);
  EXPECT_EQ(limits_in(model.import().entries[0]), limits);
  const ProgramGraphs written = model.import({}, {}, ConvNorms::kAsWritten);
  EXPECT_TRUE(std::any_of(written.entries[0].nodes().begin(),
                          written.entries[0].nodes().end(),
                          [](const auto& node) { return node->template is<Conv2d>(); }));
  const NamedTensors inputs = image_at_random();
  const std::vector<double> got = elements_of(run_model(model, inputs).at("y"));
  const std::vector<double> wanted =
      elements_of(run_model(model, inputs, {}, ConvNorms::kAsWritten).at("y"));
  EXPECT_EQ(got, wanted);
  const auto [least, most] = std::minmax_element(got.begin(), got.end());
  EXPECT_LT(*least + 5, *most);
}

ProtoBytes clip(const std::string& from,
                const std::string& low,
                const std::string& high,
                const std::string& to) {
  return node_bytes("Clip", {from, low, high}, {to});
}

TEST(QuantizedConvolution, IsThatOfItsNodesForAnyGroups) {
  for (const int64_t groups : {1, 2, 6})
    expect_limits(model_of_convolution(groups, 12, {node_bytes("Identity", {"p"}, {"a"})}), {});
  expect_limits(model_of_convolution(kIn, kIn, {node_bytes("Identity", {"p"}, {"a"})}), {});
}

TEST(QuantizedConvolution, ActivationsBecomeItsLimits) {
  const auto expect = [](std::vector<ProtoBytes> activations, const std::vector<int64_t>& limits) {
    for (const int64_t groups : {int64_t{1}, kIn})
      expect_limits(model_of_convolution(groups, kIn, activations), limits);
  };
  expect({node_bytes("Relu", {"p"}, {"a"})}, {-7, 127});
  expect({clip("p", "zero", "six", "a")}, {-7, 17});
  expect({clip("p", "minus", "two", "a")}, {-17, 1});
  expect({clip("p", "minus", "", "a")}, {-17, 127});
  expect({clip("p", "", "two", "a")}, {-128, 1});
  expect({node_bytes("Relu", {"p"}, {"r"}), clip("r", "minus", "two", "a")}, {-7, 1});
  expect({clip("p", "minus", "six", "r"), node_bytes("Relu", {"r"}, {"a"})}, {-7, 17});
  // The lower bound is above the upper one, which wins.
  const OnnxModel model = model_of(model_of_convolution(1, kIn, {clip("p", "six", "two", "a")}));
  EXPECT_EQ(limits_in(model.import().entries[0]), (std::vector<int64_t>{1, 1}));
}

TEST(QuantizedConvolution, BoundsOfAttributesAreLimits) {
  ProtoBytes low = ProtoBytes().text(1, "min").real(2, -2.6f).number(20, 1);
  ProtoBytes high = ProtoBytes().text(1, "max").real(2, 2.0f).number(20, 1);
  const OnnxModel model =
      model_of(model_of_convolution(1, kIn, {node_bytes("Clip", {"p"}, {"a"}, {low, high})}, 10));
  EXPECT_EQ(limits_in(model.import().entries[0]), (std::vector<int64_t>{-17, 1}));
}

// ---- ONNX Runtime ----

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(QuantizedConvolution, IsThatOfOnnxRuntime) {
  if (peers_python().empty()) GTEST_SKIP() << kNoPeers;
  const TempFolder folder;
  const int count = cases(12);
  const std::string command = fmt::format("{} tests/import/make_quantized_convolutions.py {} {} 1",
                                          peers_python(),
                                          folder.path().string(),
                                          count);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("{}", i);
    const OnnxModel model = model_of(text_of(folder / (name + ".onnx")));
    const DataSpec& spec = model.inputs().at(0);
    TensorType type{spec.dtype, {}};
    for (const auto& dim : spec.dims) type.shape.push_back(dim.size);
    Tensor x(type);
    const std::string given = text_of(folder / (name + ".x")),
                      wanted = text_of(folder / (name + ".y"));
    ASSERT_EQ(given.size(), static_cast<size_t>(x.elements()));
    std::memcpy(x.data(), given.data(), given.size());
    const Tensor y = run_model(model, {{spec.name, x}}).begin()->second;
    ASSERT_EQ(wanted.size(), static_cast<size_t>(y.elements()) * size_of(y.type().dtype));
    EXPECT_EQ(std::memcmp(y.data(), wanted.data(), wanted.size()), 0)
        << name << " " << text_of(folder / (name + ".txt"));
  }
}

}  // namespace
}  // namespace ridge::test
