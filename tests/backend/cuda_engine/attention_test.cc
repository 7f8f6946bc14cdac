// Attention on a simulated GPU by its kernel.
#include "ridge/graph/ops/attention.h"

#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_kernels/attention_forms.h"

namespace ridge::test {
namespace {

class CudaAttention : public SimulatedGpu {};

// Heads whose tiles take more than the 48 KiB that a kernel has without asking.
TEST_F(CudaAttention, Of16BitsIsMadeByTensorCores) {
  const auto gpu = make_backend_cuda();
  const AttentionCase form = {
      .heads = 2, .queries = 70, .keys = 70, .depth = 64, .causal = true, .packed = true};
  const AttentionCase small = {
      .queries = 40, .keys = 40, .depth = 64, .causal = true, .packed = true};
  CaseBuilder all[] = {attention_of(form, DType::kBF16),
                       attention_of(form, DType::kF16),
                       gradient_of(small, DType::kBF16)};
  for (CaseBuilder& built : all) {
    const Node& node = *built.graph().outputs()[0].value.node;
    EXPECT_EQ(names_of(*gpu, node), Names{"printed_mma"});
    expect_near_reference(*gpu, built, node);
  }
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
