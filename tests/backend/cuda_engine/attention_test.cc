// Attention on a simulated GPU by its kernel.
#include "ridge/graph/ops/attention.h"

#include "ridge/graph/ops/source.h"
#include "ridge/graph/signature.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/support/case_builder.h"

namespace ridge::test {
namespace {

class CudaAttention : public SimulatedGpu {
 protected:
  CudaAttention() { fake_.set_schedule(Schedule::kAtLast); }
  /// Each choice of the node against the reference.
  static void expect_near_reference(Backend& gpu, const Node& node, const NamedTensors& operands) {
    const auto ref = make_backend("ref");
    const Graph lone = lone_node(node);
    const NamedTensors want = evaluate(lone, *ref, operands);
    for (const std::string& line : choice_differences(lone, operands, want, gpu, *ref))
      EXPECT_EQ(line, "");
  }
};

using Names = std::vector<std::string>;

// Heads whose tiles take more than the 48 KiB that a kernel has without asking.
TEST_F(CudaAttention, Of16BitsIsMadeByTensorCores) {
  auto gpu = make_backend_cuda();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    CaseBuilder b(dtype, 5);
    const Value qkv = b.input({1, 70, 3 * 2 * 64});
    const Value y = packed_attention(qkv, 2, {.causal = true});
    b.finish({y, {y.node, 1}});
    EXPECT_EQ(names_of(*gpu, *y.node), Names{"printed_mma"});
    expect_near_reference(*gpu, *y.node, {{"0", b.tensors().begin()->second}});
  }
  gpu.reset();
  expect_clean();
}

TEST_F(CudaAttention, TheGradientToo) {
  auto gpu = make_backend_cuda();
  CaseBuilder b(DType::kBF16, 6);
  const Value qkv = b.input({1, 40, 3 * 64}), y = b.input({1, 40, 64});
  const Value logsumexp = b.input(DType::kF32, {1, 1, 40}, 1.0, 3.0), dy = b.input({1, 40, 64});
  AttentionGrad op;
  op.causal = true, op.heads = 1, op.scale = 0.125;
  const Value dqkv = add_node(std::move(op), {qkv, y, logsumexp, dy});
  b.finish({dqkv});
  EXPECT_EQ(names_of(*gpu, *dqkv.node), Names{"printed_mma"});
  NamedTensors operands;
  for (size_t i = 0; i < 4; ++i)
    operands.emplace(fmt::format("{}", i),
                     b.tensors().at(dqkv.node->inputs[i].node->op_as<Input>().input_name));
  expect_near_reference(*gpu, *dqkv.node, operands);
  gpu.reset();
  expect_clean();
}

TEST_F(CudaAttention, WhatTensorCoresDoNotTakeIsLeftToItsPlainForm) {
  const auto gpu = make_backend_cuda();
  Graph graph("shapes");
  const auto names = [&](DType dtype, int64_t depth, double scale) {
    const Value x =
        input(graph, fmt::format("{}", graph.inputs().size()), {dtype, {1, 2, 20, depth}});
    return names_of(*gpu, *attention(x, x, x, {.scale = scale}).node);
  };
  EXPECT_EQ(names(DType::kF32, 64, 1.0), Names{});
  EXPECT_EQ(names(DType::kBF16, 40, 1.0), Names{});
  EXPECT_EQ(names(DType::kBF16, 144, 1.0), Names{});
  EXPECT_EQ(names(DType::kBF16, 64, -1.0), Names{});
  EXPECT_EQ(names(DType::kF16, 128, 1.0), Names{"printed_mma"});
}

}  // namespace
}  // namespace ridge::test
