// The fused gradients of a convolution and its batch norm on the CPU: the bits of the ops one by
// one, near the reference, and the same for any number of threads and any instruction set.
#include <gtest/gtest.h>

#include "ridge/backend/ref/ref_backend.h"
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

void build(const Case& c, CaseBuilder& b) {
  const Shape channel{c.w[3]};
  Conv2dNormGrad op;
  op.window = c.window;
  op.groups = c.groups;
  op.activation = c.activation;
  op.eps = 1e-3;
  const Value dx = add_node(std::move(op),
                            {b.input(c.x),
                             b.input(c.w),
                             b.input(c.z(), -1.0, 3.0),
                             b.input(channel, 1.0, 4.0),
                             b.input(channel, -1.0, 2.0),
                             b.input(channel, 0.5, 1.5),
                             b.input(channel, 0.5, 1.5),
                             b.input(c.z())});
  b.finish({dx, {dx.node, 1}, {dx.node, 2}, {dx.node, 3}});
}

// The results of the plain form, op by op on the CPU.
NamedTensors plain_results(const CaseBuilder& b, const Graph& graph) {
  Graph plain("plain");
  std::vector<Value> inputs;
  const Node* node = graph.outputs()[0].value.node;
  for (const Node* each : graph.inputs()) inputs.push_back({&plain.add_like(*each, {}), 0});
  const std::vector<Value> results = node->op->expand(inputs);
  for (size_t i = 0; i < results.size(); ++i) plain.add_output(graph.outputs()[i].name, results[i]);
  return evaluate(plain, *make_cpu_backend(), b.tensors());
}

bool is_one_kernel(CaseBuilder& b) {
  const auto choices = make_cpu_backend()->candidates(*b.graph().outputs()[0].value.node);
  return choices.front().name != kExpandedChoice;
}

TEST(CpuConvNorm, HasTheBitsOfTheOpsOneByOne) {
  const auto ref = make_ref_backend();
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("x {} w {} {}", to_string(c.x), to_string(c.w), c.activation));
    CaseBuilder b(DType::kF32, 11);
    build(c, b);
    EXPECT_TRUE(is_one_kernel(b));
    const NamedTensors got = run_every_way(b);
    EXPECT_EQ(bit_difference(got, plain_results(b, b.graph())), "");
    for (const auto& [name, tensor] : evaluate(b.graph(), *ref, b.tensors()))
      EXPECT_EQ(difference(got.at(name), tensor, 2e-3), "") << name;
  }
}

// Where few pixels meet many channels, and for other dtypes, the plain ops do better.
TEST(CpuConvNorm, LeavesOtherShapesToThePlainOps) {
  const auto is_taken = [&](const Case& c, DType dtype) {
    CaseBuilder b(dtype, 1);
    build(c, b);
    return is_one_kernel(b);
  };
  EXPECT_TRUE(is_taken(pointwise({2, 37, 33, 16}, 96, "relu"), DType::kF32));
  EXPECT_FALSE(is_taken(pointwise({2, 37, 33, 16}, 96, "relu"), DType::kBF16));
  EXPECT_FALSE(is_taken(pointwise({2, 7, 7, 160}, 960, "relu"), DType::kF32));
  EXPECT_FALSE(is_taken({{2, 9, 9, 8}, {3, 3, 8, 8}, {}, 1, "relu"}, DType::kF32));
}

}  // namespace
}  // namespace ridge::test
