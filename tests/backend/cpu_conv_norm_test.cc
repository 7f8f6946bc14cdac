// Convolutions fused with the batch norms around them on the CPU: the bits of the ops one by one,
// near the reference, and the same for any number of threads and any instruction set.
#include <gtest/gtest.h>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv_norm.h"
#include "tests/backend/cpu_runs.h"

namespace ridge::test {
namespace {

struct Case {
  Shape x, w;
  WindowFields window;
  int64_t groups = 1;
  std::string activation = "none";

  Shape z() const {
    return {x[0],
            window.positions(0, x[1], w[0], "test"),
            window.positions(1, x[2], w[1], "test"),
            w[3]};
  }
};

Case pointwise(Shape x, int64_t out, std::string activation) {
  const int64_t channels = x[3];
  return {std::move(x), {1, 1, channels, out}, {}, 1, std::move(activation)};
}

Case depthwise(Shape x, WindowFields window, int64_t kernel, std::string activation) {
  const int64_t channels = x[3];
  return {std::move(x),
          {kernel, kernel, 1, channels},
          std::move(window),
          channels,
          std::move(activation)};
}

// Parts that end inside an image, chunks that end inside a part, bands with and without neighbours.
std::vector<Case> cases() {
  const WindowFields near{{1, 1}, {1, 1, 1, 1}, {1, 1}}, far{{2, 2}, {1, 1, 1, 1}, {1, 1}};
  return {pointwise({3, 29, 31, 5}, 7, "relu6"),
          pointwise({2, 37, 33, 16}, 96, "relu"),
          pointwise({1, 64, 65, 24}, 40, "none"),
          depthwise({3, 11, 9, 20}, near, 3, "relu6"),
          depthwise({2, 13, 12, 33}, far, 3, "relu"),
          depthwise({2, 14, 14, 48}, far, 3, "none"),
          depthwise({1, 41, 30, 128}, near, 3, "relu6"),
          depthwise({3, 9, 8, 17}, {{1, 1}, {0, 0, 0, 0}, {1, 1}}, 2, "relu"),
          depthwise({2, 10, 9, 16}, {{3, 2}, {0, 1, 1, 0}, {1, 2}}, 3, "none")};
}

constexpr double kEps = 1e-3;

NormActivation activation_of(const Case& c) { return norm_activation(c.activation, "test"); }

// A fused graph and its twin of plain ops, on the same inputs.
struct Graphs {
  explicit Graphs(DType dtype) : fused(dtype, 11), plain(dtype, 11) {}
  CaseBuilder fused, plain;
};

// The batch norm before a convolution, as the convolution takes it, and its result.
struct Before {
  Value x, y;
  std::vector<Value> inputs;  // mean, scale and shift
};

Before before(CaseBuilder& b, const Case& c) {
  const Shape channel{c.x[3]};
  const Value x = b.input(c.x, -1.0, 3.0), gamma = b.input(channel, 1.0, 4.0),
              beta = b.input(channel, -1.0, 2.0);
  BatchNormStats op;
  op.eps = kEps;
  const Value mean = add_node(std::move(op), {x, gamma, beta});
  return {x,
          batch_norm(x, gamma, beta, kEps, activation_of(c)).y,
          {mean, {mean.node, 2}, {mean.node, 3}}};
}

void build_forward(const Case& c, Graphs& g) {
  NormConv2d op;
  op.window = c.window;
  op.groups = c.groups;
  op.activation = c.activation;
  const Before norm = before(g.fused, c), plain = before(g.plain, c);
  std::vector<Value> inputs{norm.x};
  inputs.insert(inputs.end(), norm.inputs.begin(), norm.inputs.end());
  inputs.push_back(g.fused.input(c.w));
  g.fused.finish({add_node(std::move(op), inputs)});
  g.plain.finish({conv2d(plain.y, g.plain.input(c.w), c.window, c.groups)});
}

Conv2dNormGrad gradient_op(const Case& c) {
  Conv2dNormGrad op;
  op.window = c.window;
  op.groups = c.groups;
  op.activation = c.activation;
  op.eps = kEps;
  return op;
}

// w, z, gamma, beta, mean, variance and dy.
std::vector<Value> operands(CaseBuilder& b, const Case& c) {
  const Shape channel{c.w[3]};
  return {b.input(c.w),
          b.input(c.z(), -1.0, 3.0),
          b.input(channel, 1.0, 4.0),
          b.input(channel, -1.0, 2.0),
          b.input(channel, 0.5, 1.5),
          b.input(channel, 0.5, 1.5),
          b.input(c.z())};
}

std::vector<Value> with(Value x, const std::vector<Value>& more) {
  std::vector<Value> inputs{x};
  inputs.insert(inputs.end(), more.begin(), more.end());
  return inputs;
}

void build_gradients(const Case& c, bool with_norm, Graphs& g) {
  const auto source = [&](CaseBuilder& b) {
    return with_norm ? before(b, c) : Before{b.input(c.x), {}, {}};
  };
  const Before norm = source(g.fused), plain = source(g.plain);
  Conv2dNormGrad op = gradient_op(c), plain_op = gradient_op(c);
  op.input_activation = with_norm ? c.activation : "none";
  std::vector<Value> inputs = with(norm.x, operands(g.fused, c));
  inputs.insert(inputs.end(), norm.inputs.begin(), norm.inputs.end());
  const Value dx = add_node(std::move(op), inputs);
  g.fused.finish({dx, {dx.node, 1}, {dx.node, 2}, {dx.node, 3}});
  const Value x = with_norm ? plain.y : plain.x;
  g.plain.finish(plain_op.expand(with(x, operands(g.plain, c))));
}

bool is_one_kernel(CaseBuilder& b) {
  const auto choices = make_cpu_backend()->candidates(*b.graph().outputs()[0].value.node);
  return choices.front().name != kExpandedChoice;
}

void expect_same(Graphs& g) {
  EXPECT_TRUE(is_one_kernel(g.fused));
  const NamedTensors got = run_every_way(g.fused);
  EXPECT_EQ(bit_difference(got, evaluate(g.plain.graph(), *make_cpu_backend(), g.plain.tensors())),
            "");
  const NamedTensors want = evaluate(g.fused.graph(), *make_ref_backend(), g.fused.tensors());
  for (const auto& [name, tensor] : want)
    EXPECT_EQ(difference(got.at(name), tensor, 2e-3), "") << name;
}

std::string describe(const Case& c) {
  return fmt::format("x {} w {} {}", to_string(c.x), to_string(c.w), c.activation);
}

TEST(CpuConvNorm, NormalisesWhatItReads) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    Graphs g(DType::kF32);
    build_forward(c, g);
    expect_same(g);
  }
}

TEST(CpuConvNorm, GradientsHaveTheBitsOfTheOpsOneByOne) {
  for (const Case& c : cases())
    for (const bool with_norm : {false, true}) {
      SCOPED_TRACE(describe(c) + (with_norm ? ", normalised" : ""));
      Graphs g(DType::kF32);
      build_gradients(c, with_norm, g);
      expect_same(g);
    }
}

// The plain ops are faster where few pixels meet many channels, and for other dtypes.
TEST(CpuConvNorm, LeavesOtherShapesToThePlainOps) {
  const auto is_taken = [&](const Case& c, DType dtype) {
    Graphs g(dtype);
    build_gradients(c, false, g);
    return is_one_kernel(g.fused);
  };
  EXPECT_TRUE(is_taken(pointwise({2, 37, 33, 16}, 96, "relu"), DType::kF32));
  EXPECT_FALSE(is_taken(pointwise({2, 37, 33, 16}, 96, "relu"), DType::kBF16));
  EXPECT_FALSE(is_taken(pointwise({2, 7, 7, 160}, 960, "relu"), DType::kF32));
  EXPECT_FALSE(is_taken({{2, 9, 9, 8}, {3, 3, 8, 8}, {}, 1, "relu"}, DType::kF32));
}

}  // namespace
}  // namespace ridge::test
