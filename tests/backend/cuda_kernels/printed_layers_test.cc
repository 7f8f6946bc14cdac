// Kernels of the ops that layers are made of: norms, softmax, losses, pooling, convolution.
#include <gtest/gtest.h>

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

constexpr DType kFloatDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

// Rows of one piece and of several, for each dtype.
TEST(PrintedLayers, SoftmaxAndLossesOfRows) {
  Cases bits, near;
  uint64_t seed = 0;
  for (const DType dtype : kFloatDTypes)
    for (const Shape& shape :
         {Shape{1}, Shape{37, 10}, Shape{5, 1024}, Shape{2, 2, 1027}, Shape{3, 5000}}) {
      Graph graph("rows");
      const Value x = input(graph, "x", {dtype, shape});
      const Value targets = input(graph, "t", {DType::kI64, Shape(shape.begin(), shape.end() - 1)});
      const Value y = softmax(x);
      const bool is_wide = dtype == DType::kF64;
      ASSERT_TRUE((is_wide ? near : bits).add(*y.node, ++seed, Fill::kTame)) << bits.refusal();
      ASSERT_TRUE(near.add(*log_softmax(x).node, seed, Fill::kTame)) << near.refusal();
      const int64_t limit = shape.back();
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        const Value loss =
            cross_entropy(x, targets, {.ignore_index = 0, .label_smoothing = smoothing});
        ASSERT_TRUE(near.add(*loss.node, seed, Fill::kTame, limit)) << near.refusal();
      }
    }
  bits.expect_bits_of_cpu();
  near.expect_results();
}

// What is not finite stays in its row, as on the CPU.
TEST(PrintedLayers, SoftmaxOfSpecialNumbers) {
  Cases all;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{200, 7}, Shape{4, 1500}}) {
      Graph graph("rows");
      const Value x = input(graph, "x", {dtype, shape});
      ASSERT_TRUE(all.add(*softmax(x).node, 3, Fill::kSpecial)) << all.refusal();
    }
  all.expect_bits_of_cpu();
}

TEST(PrintedLayers, NormsOfRows) {
  Cases all;
  uint64_t seed = 0;
  for (const DType dtype : kFloatDTypes)
    for (const Shape& shape : {Shape{1, 1},
                               Shape{37, 10},
                               Shape{18, 768},
                               Shape{3, 4096},
                               Shape{3, 4099},
                               Shape{2, 9000}})
      for (const Fill how : {Fill::kTame, Fill::kSpecial}) {
        Graph graph("norms");
        const Value x = input(graph, "x", {dtype, shape});
        const Value gamma = input(graph, "gamma", {dtype, {shape.back()}});
        const Value beta = input(graph, "beta", {dtype, {shape.back()}});
        ASSERT_TRUE(all.add(*layer_norm(x, gamma, beta).node, ++seed, how)) << all.refusal();
        ASSERT_TRUE(all.add(*rms_norm(x, gamma).node, seed, how)) << all.refusal();
      }
  all.expect_bits_of_cpu();
}

TEST(PrintedLayers, ATargetThatIsNoClassIsReported) {
  Graph graph("wrong");
  const Value x = input(graph, "x", {DType::kF32, {40, 9}});
  const Value targets = input(graph, "t", {DType::kI64, {40}});
  const Value loss = cross_entropy(x, targets);
  Cases all;
  ASSERT_TRUE(all.add(*loss.node, 1, Fill::kTame)) << all.refusal();
  EXPECT_EQ(cuda::print_kernel(*loss.node).kernel->index_limit, 9);
  NamedTensors inputs, outputs;
  inputs.emplace("0", Tensor(x.type()));
  inputs.emplace("1", Tensor(targets.type()));
  inputs.at("1").set(3, -100);  // ignored
  inputs.at("1").set(38, 9);
  const HostFault fault = all.run_with(inputs, outputs);
  EXPECT_EQ(fault.place, 39u);
  EXPECT_EQ(fault.index, 9);
}

// ---- batch norm ----

TEST(PrintedLayers, BatchNorms) {
  // In a short form one of seven, which goes over the activations in turn.
  const int step = cases(2) < 2 ? 7 : 1;
  int number = 0;
  Cases all;
  uint64_t seed = 0;
  for (const DType dtype : kFloatDTypes)
    for (const Shape& shape :
         {Shape{1, 3}, Shape{7, 5, 4}, Shape{150, 520}, Shape{1300, 3}, Shape{2, 9, 9, 64}})
      for (const NormActivation activation :
           {NormActivation::kNone, NormActivation::kRelu, NormActivation::kRelu6}) {
        if (number++ % step != 0) continue;
        Graph graph("norms");
        const TensorType channel{dtype, {shape.back()}};
        const Value x = input(graph, "x", {dtype, shape}), dy = input(graph, "dy", {dtype, shape});
        const Value gamma = input(graph, "gamma", channel), beta = input(graph, "beta", channel);
        const Value mean = input(graph, "mean", channel);
        const Value variance = input(graph, "variance", channel);
        const Value y = batch_norm(x, gamma, beta, 1e-3, activation).y;
        const Fill how = seed % 4 == 3 ? Fill::kSpecial : Fill::kTame;
        ASSERT_TRUE(all.add(*y.node, ++seed, how)) << all.refusal();
        BatchNormGrad grad;
        grad.eps = 1e-3;
        grad.activation = y.node->op_as<BatchNorm>().activation;
        const Value dx = add_node(std::move(grad), {x, gamma, beta, mean, variance, dy});
        ASSERT_TRUE(all.add(*dx.node, seed, how)) << all.refusal();
        const Value stats = add_node(BatchNormStats{}, {x, gamma, beta});
        if (size_of(dtype) >= 4) {
          ASSERT_TRUE(all.add(*stats.node, seed, how)) << all.refusal();
        }
      }
  all.expect_bits_of_cpu();
}

// What products leave in 16 bits, with channels of f32: the bits of f32 on the widened numbers. The
// shapes have chunks of all numbers of parts, with and without a rest, and more than are combined
// at once.
TEST(PrintedLayers, BatchNormsOf16BitsBesideF32) {
  const int step = cases(2) < 2 ? 3 : 1;
  int number = 0;
  Cases all;
  uint64_t seed = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{1, 3},
                               Shape{7, 5, 4},
                               Shape{150, 520},
                               Shape{1300, 3},
                               Shape{700, 96},
                               Shape{513, 132},
                               Shape{2, 9, 9, 64},
                               Shape{8290, 512}})
      for (const bool is_dy_wide : {false, true}) {
        const bool is_large = numel(shape) > 100000;  // minutes under a sanitizer
        if (is_large && (cases(2) < 2 || is_dy_wide != (dtype == DType::kF16))) continue;
        if (number++ % step != 0) continue;
        Graph graph("norms");
        const TensorType channel{DType::kF32, {shape.back()}};
        const Value x = input(graph, "x", {dtype, shape});
        const Value dy = input(graph, "dy", {is_dy_wide ? DType::kF32 : dtype, shape});
        const Value gamma = input(graph, "gamma", channel), beta = input(graph, "beta", channel);
        const Value mean = input(graph, "mean", channel);
        const Value variance = input(graph, "variance", channel);
        const Fill how = seed % 4 == 3 ? Fill::kSpecial : Fill::kTame;
        const Value stats = add_node(BatchNormStats{}, {x, gamma, beta});
        ASSERT_TRUE(all.add(*stats.node, ++seed, how)) << all.refusal();
        BatchNormGrad grad;
        grad.activation = seed % 3 == 0 ? "none" : seed % 3 == 1 ? "relu" : "relu6";
        const Value dx = add_node(std::move(grad), {x, gamma, beta, mean, variance, dy});
        EXPECT_EQ(dx.dtype(), dtype);
        EXPECT_EQ((Value{dx.node, 1}).dtype(), DType::kF32);
        ASSERT_TRUE(all.add(*dx.node, seed, how)) << all.refusal();
      }
  all.expect_bits_of_cpu();
}

// ---- windows ----

// Geometry by seed: strides, padding, and for convolutions dilation.
struct RandomWindow {
  explicit RandomWindow(uint64_t seed, bool is_pool) : random(seed) {
    for (int d = 0; d < 2; ++d) {
      kernel.push_back(random.integer(1, 4));
      window.stride[static_cast<size_t>(d)] = random.integer(1, 3);
      if (!is_pool) window.dilation[static_cast<size_t>(d)] = random.integer(1, 2);
      for (const size_t side : {static_cast<size_t>(d), static_cast<size_t>(d) + 2})
        window.padding[side] = random.integer(0, kernel[static_cast<size_t>(d)] - 1);
      size.push_back(window.dilation[static_cast<size_t>(d)] *
                         (kernel[static_cast<size_t>(d)] - 1) +
                     random.integer(1, 9));
    }
    images = random.integer(1, 3);
  }

  Random random;
  std::vector<int64_t> kernel, size;
  WindowFields window;
  int64_t images;
};

TEST(PrintedLayers, Pools) {
  Cases all;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(cases(20)); ++seed) {
    RandomWindow drawn(seed, true);
    const DType dtype = kFloatDTypes[seed % 4];
    const int64_t channels = drawn.random.chance(0.5) ? drawn.random.integer(1, 5) : 8;
    const PoolFields pool{drawn.kernel, drawn.window};
    Graph graph("pools");
    const Value x =
        input(graph, "x", {dtype, {drawn.images, drawn.size[0], drawn.size[1], channels}});
    const bool counts = drawn.random.chance(0.5);
    const Value y = max_pool2d(x, pool), mean = avg_pool2d(x, pool, counts);
    const Value dy = input(graph, "dy", y.type());
    MaxPool2dGrad max_grad;
    max_grad.pool = pool;
    AvgPool2dGrad avg_grad;
    avg_grad.pool = pool;
    avg_grad.count_padding = counts;
    avg_grad.size = drawn.size;
    for (const Value value :
         {y, mean, add_node(std::move(max_grad), {x, dy}), add_node(std::move(avg_grad), {dy})})
      ASSERT_TRUE(all.add(*value.node, seed, Fill::kSpecial)) << all.refusal();
    ASSERT_TRUE(all.add(*y.node, seed, Fill::kZeros)) << all.refusal();
  }
  all.expect_bits_of_cpu();
}

// All three, of so many channels in and out; `pixels` more in each direction make many of them.
void add_convolutions(Cases& all,
                      uint64_t seed,
                      DType dtype,
                      int64_t in,
                      int64_t out,
                      int64_t groups,
                      int64_t pixels = 0) {
  RandomWindow drawn(seed, false);
  Graph graph("convolutions");
  const int64_t height = drawn.size[0] + pixels, width = drawn.size[1] + pixels;
  const Value x = input(graph, "x", {dtype, {drawn.images, height, width, in}});
  const Value w = input(graph, "w", {dtype, {drawn.kernel[0], drawn.kernel[1], in / groups, out}});
  const Value y = conv2d(x, w, drawn.window, groups);
  const Value dy = input(graph, "dy", y.type());
  Conv2dGradInput dx;
  dx.window = drawn.window;
  dx.groups = groups;
  dx.size = {height, width};
  Conv2dGradWeight dw;
  dw.window = drawn.window;
  dw.groups = groups;
  dw.size = drawn.kernel;
  for (const Value value : {y, add_node(std::move(dx), {dy, w}), add_node(std::move(dw), {x, dy})})
    ASSERT_TRUE(all.add(*value.node, seed, Fill::kTame)) << all.refusal();
}

TEST(PrintedLayers, ConvolutionsAreNearTheReference) {
  Cases all;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(cases(10)) + 3; ++seed) {
    const DType dtype = kFloatDTypes[seed % 4];
    Random random(seed + 1000);
    const int64_t groups = random.integer(1, 4);
    add_convolutions(all, seed, dtype, random.integer(1, 9), random.integer(1, 70), 1);
    add_convolutions(
        all, seed, dtype, groups * random.integer(1, 9), groups * random.integer(1, 12), groups);
    const int64_t channels = random.integer(2, 40);
    add_convolutions(all, seed, dtype, channels, channels, channels, 10);  // depthwise
  }
  add_convolutions(all, 7, DType::kF32, 70, 20, 1, 20);  // parts of the depth
  all.expect_results();
}

}  // namespace
}  // namespace ridge::test
