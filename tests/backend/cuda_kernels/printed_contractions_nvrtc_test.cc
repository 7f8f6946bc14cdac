// Printed matrix products, and attention by tensor cores, through NVIDIA's compiler: each form of a
// tile compiles for each generation of devices, and keeps its sums in registers.
#include <gtest/gtest.h>

#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/attention_forms.h"
#include "tests/backend/cuda_kernels/printed_cubin.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/backend/cuda_kernels/product_forms.h"
#include "tests/backend/cuda_kernels/test_limits.h"

namespace ridge::test {
namespace {

// The low twelve bits of machine code since sm_80, 16 bytes an instruction: products by tensor
// cores, matrices out of shared memory, copies into it. A test checks that they are these.
constexpr uint32_t kHmma = 0x23c, kLdsm = 0x83b, kLdgsts = 0xfae;

size_t count_of(const std::string& cubin, uint32_t instruction) {
  return count_instructions(cubin,
                            [&](uint64_t low, uint64_t) { return (low & 0xfffu) == instruction; });
}

void expect_mma(const std::string& cubin, const std::string& source) {
  for (const uint32_t instruction : {kHmma, kLdsm, kLdgsts})
    EXPECT_GE(count_of(cubin, instruction), 8u) << instruction << '\n' << source;
}

// The kernels of the nodes of a graph.
class Kernels {
 public:
  Kernels() : graph_("kernels") {}

  Value input(DType dtype, Shape shape) {
    return ridge::input(graph_, fmt::format("{}", graph_.inputs().size()), {dtype, shape});
  }
  void add(const cuda::Printing& printing) {
    ASSERT_TRUE(printing.kernel) << printing.refusal;
    kernels_.push_back(*printing.kernel);
  }
  void add_product(const ProductForm& form) {
    const auto factor = [&](const Shape& shape) { return input(form.dtype, shape); };
    add(cuda::print_kernel(*product_of(form, factor).node, kH200));
  }
  /// Forward and gradient.
  void add_attention(const AttentionCase& form, DType dtype) {
    const auto operand = [&](TensorType type, double, double) {
      return input(type.dtype, type.shape);
    };
    add(cuda::print_mma_kernel(*attention_node<Attention>(form, dtype, operand).node, kH200));
    add(cuda::print_mma_kernel(*attention_node<AttentionGrad>(form, dtype, operand).node, kH200));
  }

  /// `by_mma`: they multiply by tensor cores, too.
  void expect_no_local_memory(bool by_mma = false) const {
    expect_compile(kernels_,
                   [&](const cuda::PrintedKernel& kernel, const std::string& cubin, const auto&) {
                     if (by_mma) expect_mma(cubin, kernel.source);
                   });
  }

 private:
  Graph graph_;
  std::vector<cuda::PrintedKernel> kernels_;
};

TEST(PrintedContractions, MatrixProductsCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Kernels all;
  for (const ProductForm& form : {
           ProductForm{{2048, 300}, {300, 2048}},
           {{2048, 1024}, {2048, 1024}, false, true},
           {{1001, 2049}, {1001, 2047}, true, false},
           {{2048, 1024}, {1024, 2048}, false, false, DType::kF32, DType::kBF16},
           {{2048, 1024}, {1024, 2048}, false, false, DType::kF32, DType::kF16},
           {{2048, 1024}, {1024, 2048}, false, false, DType::kBF16},
           {{1024, 2048}, {2048, 1024}, true, true, DType::kBF16},
           {{2047, 1023}, {1023, 2049}, false, false, DType::kF16},
           {{2048, 1024}, {1024, 2048}, false, false, DType::kF64},
           {{31, 4096}, {4096, 33}, false, false, DType::kF64},
           {{256, 64, 400}, {256, 400, 64}},
           {{8192, 256}, {8192, 256}, true, false},
           {{16, 4096}, {4096, 4096}, false, false, DType::kBF16},
           {{4096, 1000}, {1000, 10}},
           // The depth equals the part of it that lies in shared memory at a time.
           {{2048, 16}, {16, 2048}},
           {{2048, 16}, {2048, 16}, false, true, DType::kBF16},
       })
    all.add_product(form);
  all.expect_no_local_memory();
}

// One kernel of each instruction, of which nothing else can make its code.
TEST(PrintedContractions, MachineCodeIsRead) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  const auto cubin = [](const std::string& body, const std::string& architecture) {
    return nvrtc()->compile(
        "#include \"ridge/backend/cuda/device/mma.h\"\nusing namespace ridge::cuda;\n"
        "extern \"C\" __global__ void one(uint32_t* x, float* y) {\n"
        "RIDGE_DYNAMIC_SHARED(memory); uint32_t a[4] = {x[0], x[1], x[2], x[3]};\n"
        "float sums[4] = {};\n" +
            body + "for (int i = 0; i < 4; ++i) x[i] = a[i], y[i] = sums[i]; }",
        "one",
        architecture);
  };
  const std::vector<std::string> bodies = {
      "multiply_16(sums, a, x[4], x[5], BF16{});",
      "load_matrices(a, shared_address(memory));",
      "copy_async<16>(shared_address(memory), x, true); copy_commit(); copy_wait<0>();"};
  const std::vector<uint32_t> instructions = {kHmma, kLdsm, kLdgsts};
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"})
    for (size_t i = 0; i < bodies.size(); ++i) {
      const std::string code = cubin(bodies[i], architecture);
      for (size_t k = 0; k < instructions.size(); ++k)
        EXPECT_EQ(count_of(code, instructions[k]), k == i ? 1u : 0u)
            << architecture << ' ' << bodies[i];
    }
}

// With two tiles of rows a warp and with one, each depth of head at its limits.
TEST(PrintedContractions, AttentionByTensorCoresCompilesWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Kernels all;
  for (const int64_t batch : {1, 64}) {
    all.add_attention({batch, 4, 1024, 1024, 64, 64, true}, DType::kBF16);
    all.add_attention({batch, 4, 1024, 1024, 64, 64, false, {batch, 1, 1024, 1024}}, DType::kF16);
    all.add_attention({batch, 4, 250, 1024, 128, 128, true}, DType::kBF16);
    all.add_attention({batch, 4, 250, 301, 128, 128, true, {batch, 1, 250, 301}}, DType::kF16);
    all.add_attention({batch, 4, 250, 301, 16, 64}, DType::kBF16);
    all.add_attention({batch, 4, 77, 301, 112, 16, true}, DType::kF16);
  }
  all.expect_no_local_memory(true);
}

}  // namespace
}  // namespace ridge::test
