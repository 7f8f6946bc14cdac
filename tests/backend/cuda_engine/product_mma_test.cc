// Matrix products of 16-bit factors on a simulated GPU, by each of their kernels.
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/signature.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_kernels/product_loops.h"
#include "tests/support/case_builder.h"

namespace ridge::test {
namespace {

class CudaProducts : public SimulatedGpu {
 protected:
  CudaProducts() { fake_.set_schedule(Schedule::kAtLast); }

  static std::vector<std::string> names_of(const Backend& gpu, const Node& node) {
    std::vector<std::string> names;
    for (const Choice& choice : gpu.candidates(node)) names.push_back(choice.name);
    return names;
  }
};

using Names = std::vector<std::string>;

// A kernel that takes more shared memory than one has without asking, and one of two launches.
TEST_F(CudaProducts, Of16BitsAreMadeByTensorCoresFirst) {
  auto gpu = make_backend_cuda();
  const auto ref = make_backend("ref");
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const auto& [m, k, n] :
         {std::tuple<int64_t, int64_t, int64_t>{70, 50, 90}, {8, 2000, 9}}) {
      CaseBuilder b(dtype, 5);
      const Value y = matmul(b.input({m, k}), b.input({k, n}));
      b.finish({y});
      EXPECT_EQ(names_of(*gpu, *y.node), (Names{"printed_mma", "printed"}));
      // Neither has the bits of the other, so that no tuner takes one for the other.
      const auto choices = gpu->candidates(*y.node);
      EXPECT_NE(choices[0].bits, choices[1].bits);
      const Graph lone = lone_node(*y.node);
      NamedTensors operands;
      for (size_t i = 0; i < 2; ++i)
        operands.emplace(fmt::format("{}", i),
                         b.tensors().at(y.node->inputs[i].node->op_as<Input>().input_name));
      const NamedTensors want = evaluate(lone, *ref, operands);
      for (const std::string& line : choice_differences(lone, operands, want, *gpu, *ref))
        EXPECT_EQ(line, "");
    }
  gpu.reset();
  expect_clean();
}

TEST_F(CudaProducts, WhatTensorCoresDoNotTakeIsPrintedWithoutThem) {
  const auto gpu = make_backend_cuda();
  Graph graph("products");
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Value x = input(graph, std::string(name_of(dtype)), {dtype, {20, 20}});
    EXPECT_EQ(names_of(*gpu, *matmul(x, x).node), Names{"printed"});
  }
}

TEST_F(CudaProducts, ALibraryIsFirst) {
  fake_blas().reset(RIDGE_FAKE_CUDA);
  const auto gpu = make_backend_with_blas();
  Graph graph("product");
  const Value x = input(graph, "x", {DType::kBF16, {32, 32}});
  const Names names = names_of(*gpu, *matmul(x, x).node);
  ASSERT_GE(names.size(), 3u);
  EXPECT_TRUE(names[0].starts_with("cublaslt")) << names[0];
  EXPECT_EQ(Names(names.end() - 2, names.end()), (Names{"printed_mma", "printed"}));
}

// A product with a loop that no library has. Beside one that multiplies faster, what the loop saves
// has to be worth it.
TEST_F(CudaProducts, WithALoop) {
  Graph graph("products");
  const auto node = [&](int64_t depth) -> const Node& {
    const auto operand = [&](DType dtype, Shape shape) {
      return input(graph, fmt::format("{}", graph.inputs().size()), {dtype, std::move(shape)});
    };
    const Value a = operand(DType::kBF16, {4096, depth}), b = operand(DType::kBF16, {depth, 4096});
    const std::vector<Value> others = {operand(DType::kBF16, {4096, 4096}),
                                       operand(DType::kF32, {4096, 1})};
    const LoopBody body = [](Value x, const std::vector<Value>& read) {
      return slope(x, read, DType::kBF16);
    };
    return *product_in_loop({}, a, b, others, body)[0].node;
  };
  const auto gpu = make_backend_cuda();
  EXPECT_EQ(names_of(*gpu, node(4096)), (Names{"printed_mma", "expanded"}));
  fake_blas().reset(RIDGE_FAKE_CUDA);
  const auto with_blas = make_backend_with_blas();
  EXPECT_EQ(names_of(*with_blas, node(64)), (Names{"printed_mma", "expanded"}));
  EXPECT_EQ(names_of(*with_blas, node(4096)), (Names{"expanded", "printed_mma"}));
}

// What a loop reads is the sum, which a plain form rounds to 16 bits first: results in f32 differ
// by that, and nothing else does.
TEST_F(CudaProducts, LoopsReadSumsThatAreNotRounded) {
  const auto gpu = make_backend_cuda(), ref = make_backend("ref");
  for (const bool f32_result : {false, true}) {
    CaseBuilder b(DType::kBF16, 8);
    MatMul op;
    op.f32_result = f32_result;
    const std::vector<Value> results =
        product_in_loop(op,
                        b.input({70, 50}),
                        b.input({50, 90}),
                        {b.input(DType::kF32, {90}, -1, 1), b.input(DType::kF32, {70, 90}, -1, 1)},
                        [](Value x, const std::vector<Value>& read) {
                          return bias_and_sum(x, read, DType::kBF16);
                        });
    b.finish(results);
    const Node& node = *results[0].node;
    EXPECT_EQ(tolerance(node, DType::kF32),
              tolerance(f32_result ? DType::kF32 : DType::kBF16, OpClass::kContraction));
    const Graph lone = lone_node(node);
    NamedTensors operands;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      operands.emplace(fmt::format("{}", i),
                       b.tensors().at(node.inputs[i].node->op_as<Input>().input_name));
    const NamedTensors want = evaluate(lone, *ref, operands);
    for (const std::string& line : choice_differences(lone, operands, want, *gpu, *ref))
      EXPECT_EQ(line, "");
  }
}

// Blocks go on from tile to tile: there are no more of them than run at a time.
TEST_F(CudaProducts, AsManyBlocksAsRunAtATime) {
  compiler().makes_empty = true;
  {
    const auto gpu = make_backend_cuda();
    CaseBuilder b(DType::kBF16, 6);
    const Value y = matmul(b.input({128 * 20, 512}), b.input({512, 256 * 10}));
    b.finish({y});
    const cuda::Printing printed = cuda::print_mma_kernel(*y.node);
    ASSERT_TRUE(printed.kernel) << printed.refusal;
    EXPECT_EQ(printed.kernel->launches.at(0).blocks, 200u);
    evaluate(b.graph(), *gpu, b.tensors());
    size_t launched = 0;
    for (const std::string& line : fake_.log())
      if (line.starts_with("cuLaunchKernel matmul_mma")) {
        ++launched;
        EXPECT_NE(line.find("<<<132,1,1;"), std::string::npos) << line;
      }
    EXPECT_EQ(launched, 1u);
  }
  compiler().makes_empty = false;
}

}  // namespace
}  // namespace ridge::test
