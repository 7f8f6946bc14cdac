// Tests where a device keeps 16 bits in memory: operands and results of products, values that loops
// write for others, and values that stay in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/nn/model.h"
#include "ridge/nn/training.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"
#include "tests/support/lazy_backend.h"

namespace ridge::test {
namespace {

constexpr int64_t kSamples = 3, kLength = 16, kWidth = 24, kVocab = 40, kLayers = 2;

nn::Training gpt() {
  nn::ModelOptions model;
  model.kind = nn::ModelKind::kGpt;
  model.gpt = {.vocab = kVocab, .context = kLength, .layers = kLayers, .heads = 2, .width = kWidth};
  const TensorType tokens{DType::kI64, {kLength}};
  return nn::Training(nn::make_model(model, {tokens, tokens}), {});
}

Graph compiled(Graph graph, DType precision, std::vector<std::string> pins = {}) {
  LazyBackend device({.stores_16_bits = true});
  run_pipeline(
      graph, device, {.precision = precision, .pins = std::move(pins), .verify_each = true});
  return graph;
}

bool is_16_bit(const TensorType& type) { return is_float(type.dtype) && size_of(type.dtype) == 2; }

// Products whose result becomes a state are those of the gradients of weights.
TEST(StoredIn16Bits, WhatProductsReadAndMake) {
  for (const DType precision : {DType::kBF16, DType::kF16}) {
    const nn::Training training = gpt();
    const Graph graph = compiled(training.step(kSamples), precision);
    int products = 0, in_f32 = 0, attentions = 0;
    for (const auto& node : graph.nodes()) {
      if (node->is<MatMul>()) {
        ++products;
        in_f32 += node->outputs[0].dtype == DType::kF32 ? 1 : 0;
        for (const Value& factor : node->inputs) EXPECT_EQ(factor.dtype(), precision);
      }
      if (node->is<Attention>() || node->is<AttentionGrad>()) {
        ++attentions;
        for (const Value& operand : node->inputs)
          EXPECT_TRUE(is_16_bit(operand.type()) || operand.rank() == 3) << node->site.name;
        EXPECT_EQ(node->outputs[0].dtype, precision);
      }
    }
    // A product and its two gradients for each of four weights a layer and the head.
    EXPECT_EQ(products, 3 * (4 * kLayers + 1));
    EXPECT_EQ(in_f32, 4 * kLayers + 1);
    EXPECT_EQ(attentions, 2 * kLayers);
  }
}

TEST(StoredIn16Bits, AWeightIsCastOnce) {
  const Graph graph = compiled(gpt().step(kSamples), DType::kBF16);
  std::map<const Node*, int> casts;
  for (const auto& node : graph.nodes())
    if (node->is<Cast>() && node->inputs[0].node->is<Input>()) ++casts[node->inputs[0].node];
  EXPECT_EQ(casts.size(), 4u * kLayers + 1);
  for (const auto& [weight, count] : casts) EXPECT_EQ(count, 1) << weight->site.name;
}

// The stream that layers add to, what it was normalised by, and sums: all else that is as large as
// the activations is written in 16 bits.
TEST(StoredIn16Bits, WhatLoopsWriteForOthers) {
  const Graph graph = compiled(gpt().step(kSamples), DType::kBF16);
  const Shape stream{kSamples, kLength, kWidth};
  int wide = 0;
  for (const auto& node : graph.nodes()) {
    if (node->is<Input>() || node->is<MatMul>() || node->site.name.starts_with("optimizer"))
      continue;
    for (size_t i = 0; i < node->outputs.size(); ++i) {
      const TensorType& type = node->outputs[i];
      if (type.dtype != DType::kF32 || type.elements() < numel(stream) || node->is<ScatterAdd>())
        continue;
      EXPECT_EQ(type.shape, stream) << node->site.name;
      ++wide;
    }
  }
  // The rows of the embedding, to which the positions are added again; the stream after each of
  // attention and MLP; and the gradient of each.
  EXPECT_EQ(wide, 2 * (1 + 2 * kLayers));
}

TEST(StoredIn16Bits, PinnedModulesStayInF32) {
  const Graph graph =
      compiled(gpt().step(kSamples), DType::kBF16, {"blocks.0.mlp.", "blocks.0.mlp:"});
  for (const auto& node : graph.nodes())
    if (node->is<MatMul>()) {
      EXPECT_EQ(node->inputs[0].dtype() == DType::kF32, node->site.name.starts_with("blocks.0.mlp"))
          << node->site.name;
    }
}

TEST(StoredIn16Bits, ConvolutionsAreCastAsEverywhere) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF32, {2, 5, 5, 3}});
  graph.add_output("y", exp(conv2d(x, input(graph, "w", {DType::kF32, {3, 3, 3, 4}}))));
  graph = compiled(std::move(graph), DType::kBF16);
  for (const auto& node : graph.nodes())
    if (node->is<Conv2d>()) {
      EXPECT_EQ(node->outputs[0].dtype, DType::kBF16);
    }
}

// One 1x1 convolution and its gradients; `stride`, `padding` and `groups` of it.
Graph pixelwise(int64_t stride, int64_t padding, int64_t groups) {
  Graph graph;
  WindowFields window;
  window.stride = {stride, stride};
  window.padding = {padding, padding, padding, padding};
  const Value x = input(graph, "x", {DType::kF32, {2, 5, 6, 8}});
  const Value w = input(graph, "w", {DType::kF32, {1, 1, 8 / groups, 12}});
  const Value y = conv2d(x, w, window, groups);
  const Value dy = input(graph, "dy", y.type());
  Conv2dGradInput dx;
  dx.window = window, dx.groups = groups, dx.size = {5, 6};
  Conv2dGradWeight dw;
  dw.window = window, dw.groups = groups;
  graph.add_output("y", y);
  graph.add_output("dx", add_node(std::move(dx), {dy, w}));
  graph.add_output("w.new", add_node(std::move(dw), {x, dy}), "w");
  return graph;
}

TEST(StoredIn16Bits, AConvolutionOfPixelsIsAProduct) {
  const auto products = [](const Graph& graph) {
    return std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
      return node->template is<MatMul>();
    });
  };
  for (const auto& [stride, padding, groups] : {std::tuple(2, 0, 1), {1, 1, 1}, {1, 0, 4}})
    EXPECT_EQ(products(compiled(pixelwise(stride, padding, groups), DType::kBF16)), 0);
  EXPECT_EQ(products(compiled(pixelwise(1, 0, 1), DType::kF32)), 0);

  const Graph plain = pixelwise(1, 0, 1), graph = compiled(plain.clone(), DType::kBF16);
  EXPECT_EQ(products(graph), 3);
  for (const auto& node : graph.nodes())
    if (node->is<MatMul>()) {
      // The gradient of the weights becomes a state.
      EXPECT_EQ(node->op_as<MatMul>().f32_result, node->op_as<MatMul>().transpose_a);
    }
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  NamedTensors inputs;
  std::mt19937_64 random(3);
  for (const Node* node : plain.inputs()) {
    Tensor tensor(node->outputs[0]);
    // Numbers of few bits, so that no product is rounded.
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, static_cast<double>(random() % 9) - 4);
    inputs.emplace(node->op_as<Input>().input_name, std::move(tensor));
  }
  const NamedTensors want = evaluate(plain, *ref, inputs), got = evaluate(graph, *cpu, inputs);
  for (const auto& [name, tensor] : want)
    EXPECT_EQ(difference(got.at(name), tensor, name == "w.new" ? 0 : 0x1p-8), "") << name;
}

// Running statistics are a state that is made of it, and as large as nothing of it.
TEST(StoredIn16Bits, WhatIsNormalisedBecomesNoState) {
  Graph graph = pixelwise(1, 0, 1);
  const TensorType channel{DType::kF32, {12}};
  const BatchNormResult norm = batch_norm(
      graph.outputs()[0].value, input(graph, "gamma", channel), input(graph, "beta", channel));
  graph.add_output("z", norm.y);
  graph.add_output("mean.new", norm.mean + input(graph, "mean", channel), "mean");
  graph = compiled(std::move(graph), DType::kBF16);
  int products = 0;
  for (const auto& node : graph.nodes()) {
    if (!node->is<MatMul>() || node->op_as<MatMul>().transpose_a) continue;
    ++products;
    EXPECT_EQ(node->outputs[0].dtype, DType::kBF16) << node->site.name;
  }
  EXPECT_EQ(products, 2);
}

// Without a request for it nothing changes, and the CPU rounds while it packs.
TEST(StoredIn16Bits, OnlyWhereItIsAskedFor) {
  Graph plain = gpt().step(kSamples), stored = gpt().step(kSamples);
  LazyBackend cpu, device({.stores_16_bits = true});
  run_pipeline(plain, cpu, {});
  run_pipeline(stored, device, {});
  EXPECT_EQ(print(plain), print(stored));
}

// Convolutions of 3x3, of one pixel and of one channel a group, and norms with their gradients:
// what they hand on has 16 bits in bf16, and what a norm has of each channel never.
TEST(ImagesOf16Bits, AreThoseOfNormsOnTheCpu) {
  for (const auto& [precision, image] :
       {std::pair(DType::kBF16, DType::kBF16), std::pair(DType::kF16, DType::kF32)}) {
    Graph graph("images");
    const auto f32 = [&](const char* name, Shape shape) {
      return input(graph, name, {DType::kF32, std::move(shape)});
    };
    WindowFields padded;
    padded.padding = {1, 1, 1, 1};
    const Value one = conv2d(f32("x", {2, 8, 8, 16}), f32("w", {3, 3, 16, 16}), padded);
    const BatchNormResult norm = batch_norm(one, f32("g", {16}), f32("b", {16}));
    const Value two = conv2d(norm.y, f32("v", {1, 1, 16, 32}));
    const Value three = conv2d(two, f32("u", {3, 3, 1, 32}), padded, 32);
    BatchNormGrad op;
    Node& grad = graph.add(
        std::make_shared<const BatchNormGrad>(op),
        {one, f32("h", {16}), f32("c", {16}), norm.mean, norm.variance, f32("dy", {2, 8, 8, 16})});
    graph.add_output("y", three);
    graph.add_output("mean", norm.mean);
    graph.add_output("dx", {&grad, 0});
    graph.add_output("dg", {&grad, 1});
    LazyBackend cpu;
    run_pipeline(graph, cpu, {.precision = precision, .verify_each = true});
    int norms = 0;
    for (const auto& node : graph.nodes()) {
      if (!node->is<BatchNorm>() && !node->is<BatchNormGrad>()) continue;
      ++norms;
      EXPECT_EQ(node->inputs[0].dtype(), image);
      EXPECT_EQ(node->outputs[0].dtype, image);
      EXPECT_EQ(node->inputs[1].dtype(), DType::kF32);
      EXPECT_EQ(node->outputs[1].dtype, DType::kF32);
    }
    EXPECT_EQ(norms, 2) << print(graph);
    for (const Output& output : graph.outputs()) EXPECT_EQ(output.value.dtype(), DType::kF32);
  }
}

}  // namespace
}  // namespace ridge::test
