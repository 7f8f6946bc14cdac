// Printed matrix products and attention through NVIDIA's compiler: each form of a tile compiles for
// each generation of devices, and keeps its sums in registers.
#include <gtest/gtest.h>

#include <cstdio>

#include "ridge/backend/cuda/cubin.h"
#include "ridge/backend/cuda/print_kernel.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// The kernels of the nodes of a graph.
class Kernels {
 public:
  Kernels() : graph_("kernels") {}

  Value input(DType dtype, Shape shape) {
    return ridge::input(graph_, fmt::format("{}", graph_.inputs().size()), {dtype, shape});
  }
  void add(Value value) {
    cuda::Printing printing = cuda::print_kernel(*value.node);
    ASSERT_TRUE(printing.kernel) << printing.refusal;
    kernels_.push_back(std::move(*printing.kernel));
  }
  void add_matmul(DType dtype,
                  Shape a,
                  Shape b,
                  bool transpose_a = false,
                  bool transpose_b = false,
                  DType round_to = DType::kF32) {
    MatMul op;
    op.transpose_a = transpose_a;
    op.transpose_b = transpose_b;
    op.accumulate = accumulate_dtype(dtype);
    op.round_to = round_to;
    add(add_node(std::move(op), {input(dtype, std::move(a)), input(dtype, std::move(b))}));
  }
  /// Forward and gradient.
  void add_attention(DType dtype,
                     int64_t queries,
                     int64_t keys,
                     int64_t depth,
                     int64_t width,
                     bool causal,
                     bool masked) {
    Attention op;
    op.causal = causal;
    std::vector<Value> inputs{input(dtype, {2, 4, queries, depth}),
                              input(dtype, {2, 4, keys, depth}),
                              input(dtype, {2, 4, keys, width})};
    AttentionGrad grad;
    grad.causal = causal;
    std::vector<Value> all = inputs;
    const Value y = input(dtype, {2, 4, queries, width});
    all.insert(all.end(), {y, input(logsumexp_dtype(dtype), {2, 4, queries}), y});
    if (masked) {
      const Value mask = input(DType::kBool, {2, 1, queries, keys});
      inputs.push_back(mask);
      all.push_back(mask);
    }
    add(add_node(std::move(op), std::move(inputs)));
    add(add_node(std::move(grad), std::move(all)));
  }

  void expect_no_local_memory() const {
    // One generation of each kernel in turn; all of them in the full form.
    constexpr const char* kArchitectures[] = {"sm_90", "sm_80", "sm_100"};
    for (size_t i = 0; i < kernels_.size(); ++i)
      for (size_t k = 0; k < std::size(kArchitectures); ++k) {
        if (!is_full_scale() && k != i % std::size(kArchitectures)) continue;
        const cuda::PrintedKernel& kernel = kernels_[i];
        for (const cuda::KernelUse& use :
             cuda::read_cubin(nvrtc()->compile(kernel.source, kernel.name, kArchitectures[k]))) {
          EXPECT_EQ(use.local_bytes, 0)
              << kArchitectures[k] << ", " << use.registers << " registers\n"
              << kernel.source;
          // 48 KiB, and what sm_90 and later keep for themselves.
          EXPECT_LE(use.shared_bytes, 49 << 10) << kernel.source;
          std::printf("%-7s %3d registers %5d bytes shared %s\n",
                      kArchitectures[k],
                      use.registers,
                      use.shared_bytes,
                      use.entry.c_str());
        }
      }
  }

 private:
  Graph graph_;
  std::vector<cuda::PrintedKernel> kernels_;
};

TEST(PrintedContractions, MatrixProductsCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Kernels all;
  all.add_matmul(DType::kF32, {2048, 300}, {300, 2048});
  all.add_matmul(DType::kF32, {2048, 1024}, {2048, 1024}, false, true);
  all.add_matmul(DType::kF32, {1001, 2049}, {1001, 2047}, true, false);
  all.add_matmul(DType::kF32, {2048, 1024}, {1024, 2048}, false, false, DType::kBF16);
  all.add_matmul(DType::kF32, {2048, 1024}, {1024, 2048}, false, false, DType::kF16);
  all.add_matmul(DType::kBF16, {2048, 1024}, {1024, 2048});
  all.add_matmul(DType::kBF16, {1024, 2048}, {2048, 1024}, true, true);
  all.add_matmul(DType::kF16, {2047, 1023}, {1023, 2049});
  all.add_matmul(DType::kF64, {2048, 1024}, {1024, 2048});
  all.add_matmul(DType::kF64, {31, 4096}, {4096, 33});
  all.add_matmul(DType::kF32, {256, 64, 400}, {256, 400, 64});
  all.add_matmul(DType::kF32, {8192, 256}, {8192, 256}, true, false);
  all.add_matmul(DType::kBF16, {16, 4096}, {4096, 4096});
  all.add_matmul(DType::kF32, {4096, 1000}, {1000, 10});
  all.expect_no_local_memory();
}

TEST(PrintedContractions, AttentionCompilesWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Kernels all;
  all.add_attention(DType::kF32, 1024, 1024, 64, 64, true, false);
  all.add_attention(DType::kBF16, 1024, 1024, 64, 64, true, false);
  all.add_attention(DType::kF32, 256, 2048, 128, 128, false, false);
  all.add_attention(DType::kF16, 250, 301, 33, 70, true, true);
  all.add_attention(DType::kF64, 256, 256, 64, 64, true, false);
  all.add_attention(DType::kF64, 77, 1100, 100, 100, false, true);
  all.expect_no_local_memory();
}

}  // namespace
}  // namespace ridge::test
