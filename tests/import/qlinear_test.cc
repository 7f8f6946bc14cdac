// Operators of com.microsoft on bytes, against sums in f64 that are rounded by nobody.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"

namespace ridge::test {
namespace {

constexpr int kUint8 = 2, kInt8 = 3;
constexpr float kScale = 0.013f;  // of results
constexpr int kZero = 111;

// Bytes with a scale and a zero point.
struct Bytes8 {
  Shape shape;
  std::vector<uint8_t> elements;
  float scale = 1;
  int zero = 0;

  double at(size_t i) const { return static_cast<double>(scale) * (elements[i] - zero); }
};

Bytes8 random_bytes(Shape shape, float scale, int zero, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> elements(static_cast<size_t>(numel(shape)));
  for (uint8_t& e : elements) e = static_cast<uint8_t>(random());
  return {std::move(shape), std::move(elements), scale, zero};
}

// A model of one node: parts are inputs of a run, and what belongs to them initializers.
class OneNode {
 public:
  void add(const Bytes8& part) {
    const std::string name = fmt::format("x{}", inputs_.size());
    names_.push_back(name);
    inputs_.push_back(
        value_bytes(name, kUint8, std::vector<NamedSize>(part.shape.begin(), part.shape.end())));
    const std::vector<double> elements(part.elements.begin(), part.elements.end());
    data_.emplace(name, tensor_of({DType::kU8, part.shape}, elements));
    add_scale(part.scale, part.zero);
  }
  void add_scale(float scale, int zero) {
    add_initializer(floats_bytes(next(), {}, {scale}));
    add_initializer(tensor_bytes<uint8_t>(next(), kUint8, {}, {static_cast<uint8_t>(zero)}));
  }
  // The initializer is the one that next() named.
  void add_initializer(ProtoBytes tensor) {
    names_.push_back(next());
    initializers_.push_back(std::move(tensor));
  }
  std::string next() const { return fmt::format("c{}", initializers_.size()); }

  // The elements of the result, of u8 or f32.
  std::vector<double> run(const std::string& op,
                          int type,
                          const Shape& shape,
                          const std::vector<ProtoBytes>& attributes = {}) {
    ProtoBytes node = node_bytes(op, names_, {"y"}, attributes);
    node.text(7, "com.microsoft");
    const OnnxModel model = model_of(model_bytes(
        {.nodes = {node},
         .initializers = initializers_,
         .inputs = inputs_,
         .outputs = {value_bytes("y", type, std::vector<NamedSize>(shape.begin(), shape.end()))}}));
    const NamedTensors outputs = run_model(model, data_);
    const Tensor& y = outputs.at("y");
    EXPECT_EQ(y.type(), (TensorType{type == kUint8 ? DType::kU8 : DType::kF32, shape}));
    return elements_of(y);
  }

 private:
  std::vector<std::string> names_;
  std::vector<ProtoBytes> inputs_, initializers_;
  NamedTensors data_;
};

void expect_rounded(const std::vector<double>& bytes, const std::vector<double>& exact) {
  ASSERT_EQ(bytes.size(), exact.size());
  for (size_t i = 0; i < bytes.size(); ++i)
    EXPECT_NEAR(
        bytes[i], std::clamp(exact[i] / static_cast<double>(kScale) + kZero, 0.0, 255.0), 0.5001)
        << i;
}

std::vector<double> run_node(const std::string& op,
                             const std::vector<Bytes8>& parts,
                             const Shape& shape,
                             const std::vector<ProtoBytes>& attributes = {}) {
  OneNode node;
  for (const Bytes8& part : parts) node.add(part);
  node.add_scale(kScale, kZero);
  return node.run(op, kUint8, shape, attributes);
}

const Bytes8 kX = random_bytes({2, 3, 4}, 0.01f, 120, 1);

ProtoBytes float_attribute(std::string_view name, float value) {
  return ProtoBytes().text(1, name).real(2, value).number(20, 1);
}

TEST(QLinear, AddAndMulBroadcast) {
  const Bytes8 b = random_bytes({4}, 0.02f, 7, 2);
  std::vector<double> sums, products;
  for (size_t i = 0; i < kX.elements.size(); ++i) {
    sums.push_back(kX.at(i) + b.at(i % 4));
    products.push_back(kX.at(i) * b.at(i % 4));
  }
  expect_rounded(run_node("QLinearAdd", {kX, b}, kX.shape), sums);
  expect_rounded(run_node("QLinearMul", {kX, b}, kX.shape), products);
}

TEST(QLinear, Activations) {
  std::vector<double> sigmoids, leaky;
  for (size_t i = 0; i < kX.elements.size(); ++i) {
    const double x = kX.at(i);
    sigmoids.push_back(1 / (1 + std::exp(-x)));
    leaky.push_back(x < 0 ? 0.25 * x : x);
  }
  expect_rounded(run_node("QLinearSigmoid", {kX}, kX.shape), sigmoids);
  expect_rounded(run_node("QLinearLeakyRelu", {kX}, kX.shape, {float_attribute("alpha", 0.25f)}),
                 leaky);
}

TEST(QLinear, SoftmaxOfOneAxisAndOfAllBehindIt) {
  for (const size_t count : {4, 12}) {
    std::vector<double> shares(kX.elements.size());
    for (size_t start = 0; start < shares.size(); start += count) {
      double sum = 0;
      for (size_t i = start; i < start + count; ++i) sum += shares[i] = std::exp(kX.at(i));
      for (size_t i = start; i < start + count; ++i) shares[i] /= sum;
    }
    const std::vector<ProtoBytes> attributes =
        count == 4 ? std::vector{int_attribute("axis", -1), int_attribute("opset", 13)}
                   : std::vector{int_attribute("axis", 1), int_attribute("opset", 11)};
    expect_rounded(run_node("QLinearSoftmax", {kX}, kX.shape, attributes), shares);
  }
}

TEST(QLinear, Pools) {
  const Bytes8 x = random_bytes({1, 2, 4, 4}, 0.01f, 90, 3);
  std::vector<double> means, quarters(8);
  for (size_t c = 0; c < 2; ++c) {
    double sum = 0;
    for (size_t i = 0; i < 16; ++i) {
      sum += x.at(16 * c + i);
      quarters[4 * c + i / 8 * 2 + i % 4 / 2] += x.at(16 * c + i) / 4;
    }
    means.push_back(sum / 16);
  }
  expect_rounded(run_node("QLinearGlobalAveragePool", {x}, {1, 2, 1, 1}), means);
  expect_rounded(
      run_node("QLinearAveragePool",
               {x},
               {1, 2, 2, 2},
               {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})}),
      quarters);
}

TEST(QLinear, ImagesWithTheirChannelsLastAreRefused) {
  const Bytes8 x = random_bytes({1, 4, 4, 2}, 0.01f, 90, 3);
  EXPECT_THROW(
      run_node("QLinearGlobalAveragePool", {x}, {1, 1, 1, 2}, {int_attribute("channels_last", 1)}),
      UserError);
}

// Its scale and zero point come first.
TEST(QLinear, ConcatOfOtherScales) {
  const Bytes8 b = random_bytes({2, 2, 4}, 0.004f, 200, 4);
  OneNode node;
  node.add_scale(kScale, kZero);
  node.add(kX);
  node.add(b);
  std::vector<double> exact;
  for (size_t row = 0; row < 2; ++row) {
    for (size_t i = 0; i < 12; ++i) exact.push_back(kX.at(12 * row + i));
    for (size_t i = 0; i < 8; ++i) exact.push_back(b.at(8 * row + i));
  }
  expect_rounded(node.run("QLinearConcat", kUint8, {2, 5, 4}, {int_attribute("axis", 1)}), exact);
}

TEST(QLinear, WhereOfOtherScales) {
  const Bytes8 b = random_bytes({2, 3, 4}, 0.004f, 200, 5);
  OneNode node;
  const std::vector<uint8_t> chosen{1, 0, 0, 1};
  node.add_initializer(tensor_bytes(node.next(), kBool, {4}, chosen));
  node.add(kX);
  node.add(b);
  node.add_scale(kScale, kZero);
  std::vector<double> exact;
  for (size_t i = 0; i < kX.elements.size(); ++i)
    exact.push_back(chosen[i % 4] != 0 ? kX.at(i) : b.at(i));
  expect_rounded(node.run("QLinearWhere", kUint8, kX.shape), exact);
}

// Weights (columns, depth) with a scale for each column, and a bias of the product of both scales.
TEST(QLinear, GemmGivesBytesOrFloats) {
  constexpr int64_t kRows = 3, kDepth = 20, kColumns = 5;
  const Bytes8 a = random_bytes({kRows, kDepth}, 0.01f, 128, 6);
  std::mt19937 random(7);
  std::vector<int8_t> weights(kColumns * kDepth);
  std::vector<float> scales(kColumns);
  std::vector<int32_t> bias(kColumns);
  for (int8_t& w : weights) w = static_cast<int8_t>(random());
  for (float& s : scales) s = std::uniform_real_distribution<float>(0.001f, 0.005f)(random);
  for (int32_t& b : bias) b = static_cast<int32_t>(random() % 20000) - 10000;
  std::vector<double> exact;
  for (size_t i = 0; i < kRows; ++i)
    for (size_t j = 0; j < kColumns; ++j) {
      int64_t sum = bias[j];
      for (size_t p = 0; p < kDepth; ++p)
        sum += (a.elements[i * kDepth + p] - a.zero) * weights[j * kDepth + p];
      exact.push_back(static_cast<double>(sum) * static_cast<double>(a.scale) *
                      static_cast<double>(scales[j]));
    }
  for (const bool gives_bytes : {true, false}) {
    OneNode node;
    node.add(a);
    node.add_initializer(tensor_bytes(node.next(), kInt8, {kColumns, kDepth}, weights));
    node.add_initializer(floats_bytes(node.next(), {kColumns}, scales));
    node.add_initializer(
        tensor_bytes(node.next(), kInt8, {kColumns}, std::vector<int8_t>(kColumns)));
    node.add_initializer(tensor_bytes(node.next(), kInt32, {kColumns}, bias));
    if (gives_bytes) node.add_scale(kScale, kZero);
    const std::vector<double> y = node.run(
        "QGemm", gives_bytes ? kUint8 : kFloat, {kRows, kColumns}, {int_attribute("transB", 1)});
    if (gives_bytes) {
      expect_rounded(y, exact);
    } else {
      for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], exact[i], 1e-4) << i;
    }
  }
}

}  // namespace
}  // namespace ridge::test
