// Convolutions and their batch norms become one op where nobody else reads what passes between
// them, and the bits stay.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/compare.h"

namespace ridge::test {
namespace {

WindowFields near() { return {{1, 1}, {1, 1, 1, 1}, {1, 1}}; }

// Expansion, depthwise and projection with their norms, and all gradients, of few channels.
struct Block {
  Value loss, dz;
  std::vector<Value> parameters;
};

Value layer(CaseBuilder& b, Block& block, Value x, Shape w, NormActivation activation) {
  const int64_t groups = w[2] == 1 && w[0] > 1 ? w[3] : 1;
  const Value weight = b.input(w), gamma = b.input({w[3]}, 0.5, 1.5), beta = b.input({w[3]});
  block.parameters.insert(block.parameters.end(), {weight, gamma, beta});
  const Value z = conv2d(x, weight, w[0] > 1 ? near() : WindowFields{}, groups);
  return batch_norm(z, gamma, beta, 1e-3, activation).y;
}

void build_block(CaseBuilder& b) {
  Block block;
  const Value x = b.input({2, 32, 32, 8});
  block.parameters.push_back(x);
  Value y = layer(b, block, x, {1, 1, 8, 24}, NormActivation::kRelu6);
  y = layer(b, block, y, {3, 3, 1, 24}, NormActivation::kRelu6);
  y = layer(b, block, y, {1, 1, 24, 8}, NormActivation::kNone);
  const Value sum = x + y;
  block.loss = reduce_sum(sum * sum);
  std::vector<Value> outputs = gradients(block.loss, block.parameters);
  outputs.push_back(block.loss);
  b.finish(outputs);
}

int64_t count(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == op;
  });
}

Graph compiled(const Graph& graph, std::vector<std::string> off) {
  Graph result = graph.clone();
  run_pipeline(result, *make_backend("cpu"), {.off = std::move(off), .verify_each = true});
  return result;
}

TEST(FuseConvNorms, JoinsTheGradientsOfABlock) {
  CaseBuilder b(DType::kF32, 3);
  build_block(b);
  const Graph fused = compiled(b.graph(), {});
  EXPECT_EQ(count(fused, "conv2d_norm_grad"), 3);
  EXPECT_EQ(count(fused, "batch_norm_grad"), 0);
  EXPECT_EQ(count(fused, "conv2d_grad_input"), 0);
  EXPECT_EQ(count(fused, "conv2d_grad_weight"), 0);
  // The last norm is added to x.
  EXPECT_EQ(count(fused, "batch_norm_stats"), 2);
  EXPECT_EQ(count(fused, "norm_conv2d"), 2);
  EXPECT_EQ(count(fused, "batch_norm"), 1);
  EXPECT_EQ(count(fused, "conv2d"), 1);
  const auto cpu = make_backend("cpu");
  const Graph plain = compiled(b.graph(), {"fuse_conv_norms"});
  EXPECT_EQ(count(plain, "conv2d_norm_grad"), 0);
  EXPECT_EQ(bit_difference(evaluate(fused, *cpu, b.tensors()), evaluate(plain, *cpu, b.tensors())),
            "");
}

TEST(FuseConvNorms, LeavesAGradientThatOthersRead) {
  CaseBuilder b(DType::kF32, 4);
  const Value x = b.input({2, 24, 24, 8}), w = b.input({1, 1, 8, 16});
  const Value gamma = b.input({16}), beta = b.input({16});
  const Value z = conv2d(x, w);
  const Value y = batch_norm(z, gamma, beta).y;
  const Value loss = reduce_sum(y * y);
  const std::vector<Value> wanted{x, w, gamma, z};
  b.finish(gradients(loss, wanted));
  const Graph graph = compiled(b.graph(), {});
  EXPECT_EQ(count(graph, "conv2d_norm_grad"), 0);
  EXPECT_EQ(count(graph, "batch_norm_stats"), 0);
}

// Importers leave it so: a kernel (O, I, H, W) that is transposed where it is read.
TEST(FuseConvNorms, ReadsAKernelThatIsTransposedBehindTheNorm) {
  CaseBuilder b(DType::kF32, 6);
  const Value x = b.input({2, 32, 32, 8}), kernel = b.input({24, 8, 1, 1});
  std::vector<Value> inputs{b.input({2, 32, 32, 24})};
  for (int i = 0; i < 4; ++i) inputs.push_back(b.input({24}));
  inputs.push_back(b.input({2, 32, 32, 24}));
  inputs[4] = inputs[4] * inputs[4] + 1.0;  // the variance
  const Value norm = add_node(BatchNormGrad(), inputs);
  Conv2dGradInput input_gradient;
  input_gradient.size = {32, 32};
  const Value dx = add_node(input_gradient, {norm, transpose(kernel, {2, 3, 1, 0})});
  const Value dw = add_node(Conv2dGradWeight(), {x, norm});
  b.finish({dx, transpose(dw, {3, 2, 0, 1}), {norm.node, 1}});
  const Graph fused = compiled(b.graph(), {});
  EXPECT_EQ(count(fused, "conv2d_norm_grad"), 1);
  EXPECT_EQ(count(fused, "batch_norm_grad"), 0);
  const auto cpu = make_backend("cpu");
  const Graph plain = compiled(b.graph(), {"fuse_conv_norms"});
  EXPECT_EQ(bit_difference(evaluate(fused, *cpu, b.tensors()), evaluate(plain, *cpu, b.tensors())),
            "");
}

TEST(FuseConvNorms, LeavesTheReferenceBackendAlone) {
  CaseBuilder b(DType::kF32, 5);
  build_block(b);
  Graph graph = b.graph().clone();
  run_pipeline(graph, *make_backend("ref"), {.verify_each = true});
  EXPECT_EQ(count(graph, "conv2d_norm_grad"), 0);
}

}  // namespace
}  // namespace ridge::test
