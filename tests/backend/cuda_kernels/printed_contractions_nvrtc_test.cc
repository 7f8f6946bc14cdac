// Printed matrix products and attention through NVIDIA's compiler: each form of a tile compiles for
// each generation of devices, and keeps its sums in registers.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "ridge/backend/cuda/product_form.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_cubin.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/backend/cuda_kernels/product_loops.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// The low twelve bits of machine code since sm_80, 16 bytes an instruction: products by tensor
// cores, matrices out of shared memory, copies into it. A test checks that they are these.
constexpr uint32_t kHmma = 0x23c, kLdsm = 0x83b, kLdgsts = 0xfae;

// How often the instruction is in the code of a cubin, an ELF file that read_cubin() has accepted.
size_t count_of(const std::string& cubin, uint32_t instruction) {
  const auto number = [&]<typename T>(size_t at, T) {
    T x;
    std::memcpy(&x, cubin.data() + at, sizeof x);
    return x;
  };
  constexpr uint64_t kIsCode = 4;
  const auto sections = number(0x28, uint64_t{0});
  size_t found = 0;
  for (uint16_t i = 0; i < number(0x3c, uint16_t{0}); ++i) {
    const size_t header = sections + size_t{64} * i;
    if ((number(header + 8, uint64_t{0}) & kIsCode) == 0) continue;
    const auto begin = number(header + 24, uint64_t{0}), size = number(header + 32, uint64_t{0});
    for (uint64_t at = begin; at < begin + size; at += 16)
      found += (number(at, uint32_t{0}) & 0xfffu) == instruction ? 1 : 0;
  }
  return found;
}

void expect_mma(const std::string& cubin, const std::string& source) {
  // Lines of an odd number of elements go through registers.
  const bool copies = source.find("kBytesA = 2") == std::string::npos &&
                      source.find("kBytesB = 2") == std::string::npos;
  for (const uint32_t instruction : {kHmma, kLdsm, kLdgsts})
    EXPECT_GE(count_of(cubin, instruction), instruction != kLdgsts || copies ? 8u : 0u)
        << instruction << '\n'
        << source;
}

// The kernels of the nodes of a graph.
class Kernels {
 public:
  Kernels() : graph_("kernels") {}

  Value input(DType dtype, Shape shape) {
    return ridge::input(graph_, fmt::format("{}", graph_.inputs().size()), {dtype, shape});
  }
  void add(Value value, bool by_mma = false) {
    cuda::Printing printing =
        by_mma ? cuda::print_mma_kernel(*value.node) : cuda::print_kernel(*value.node);
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
  /// By tensor cores.
  void add_product(const cuda::ProductCut& cut, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
    MatMul op;
    op.transpose_a = ta, op.transpose_b = tb;
    op.f32_result = ta;
    const DType dtype = tb ? DType::kF16 : DType::kBF16;
    const Value a = input(dtype, ta ? Shape{k, m} : Shape{m, k});
    const Value b = input(dtype, tb ? Shape{n, k} : Shape{k, n});
    kernels_.push_back(cuda::print_product(*add_node(std::move(op), {a, b}).node, cut));
  }
  /// Forward and gradient.
  void add_attention(DType dtype,
                     int64_t queries,
                     int64_t keys,
                     int64_t depth,
                     int64_t width,
                     bool causal,
                     bool masked,
                     bool by_mma = false,
                     int64_t batch = 2) {
    Attention op;
    op.causal = causal;
    std::vector<Value> inputs{input(dtype, {batch, 4, queries, depth}),
                              input(dtype, {batch, 4, keys, depth}),
                              input(dtype, {batch, 4, keys, width})};
    AttentionGrad grad;
    grad.causal = causal;
    std::vector<Value> all = inputs;
    const Value y = input(dtype, {batch, 4, queries, width});
    all.insert(all.end(), {y, input(logsumexp_dtype(dtype), {batch, 4, queries}), y});
    if (masked) {
      const Value mask = input(DType::kBool, {batch, 1, queries, keys});
      inputs.push_back(mask);
      all.push_back(mask);
    }
    add(add_node(std::move(op), std::move(inputs)), by_mma);
    add(add_node(std::move(grad), std::move(all)), by_mma);
  }

  /// `by_mma`: they multiply by tensor cores, too.
  void expect_no_local_memory(bool by_mma = false) const {
    // One generation of each kernel in turn; all of them in the full form.
    constexpr const char* kArchitectures[] = {"sm_90", "sm_80", "sm_100"};
    for (size_t i = 0; i < kernels_.size(); ++i)
      for (size_t k = 0; k < std::size(kArchitectures); ++k) {
        if (!is_full_scale() && k != i % std::size(kArchitectures)) continue;
        const cuda::PrintedKernel& kernel = kernels_[i];
        const std::string cubin = nvrtc()->compile(kernel.source, kernel.name, kArchitectures[k]);
        if (by_mma) expect_mma(cubin, kernel.source);
        for (const test::KernelUse& use : test::read_cubin(cubin)) {
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
    all.add_attention(DType::kBF16, 1024, 1024, 64, 64, true, false, true, batch);
    all.add_attention(DType::kF16, 1024, 1024, 64, 64, false, true, true, batch);
    all.add_attention(DType::kBF16, 250, 1024, 128, 128, true, false, true, batch);
    all.add_attention(DType::kF16, 250, 301, 128, 128, true, true, true, batch);
    all.add_attention(DType::kBF16, 250, 301, 16, 64, false, false, true, batch);
    all.add_attention(DType::kF16, 77, 301, 112, 16, true, false, true, batch);
  }
  all.expect_no_local_memory(true);
}

// Each form, by lines of 16, 8, 4 and 2 bytes, in whole tiles and not.
TEST(PrintedContractions, ProductsByTensorCoresCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Kernels all;
  size_t number = 0;
  for (const cuda::ProductForm& form : cuda::kProductForms)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const int64_t parts = number % 3 == 0 ? 2 : 1;
        all.add_product({form, parts}, 4096, 4096, 4096, ta, tb);
        const int64_t less = int64_t{8} >> (number++ % 4);
        all.add_product({form, parts}, 4096 - less, 4096 - less, 4096 - less, ta, tb);
      }
  all.expect_no_local_memory(true);
}

// The layers of GPT-2 with what surrounds their products.
TEST(PrintedContractions, ProductsWithLoopsCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Kernels all;
  for (const int64_t odd : {0, 2, 3}) {
    const int64_t rows = 4096, columns = 3072 + odd, depth = 768;
    const DType dtype = odd == 2 ? DType::kF16 : DType::kBF16;
    const Value x = all.input(dtype, {rows, depth}), w = all.input(dtype, {depth, columns});
    const Value bias = all.input(DType::kF32, {columns});
    const Value beside = all.input(DType::kF32, {rows, columns});
    const auto add = [&](const std::vector<Value>& others, auto write) {
      all.add(product_in_loop({},
                              x,
                              w,
                              others,
                              [&](Value y, const std::vector<Value>& read) {
                                return write(y, read, dtype);
                              })[0],
              true);
    };
    add({bias}, bias_and_gelu);
    add({bias, beside}, bias_and_sum);
    add({all.input(dtype, {rows, columns}), all.input(DType::kF32, {rows, 1})}, slope);
  }
  all.expect_no_local_memory(true);
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
