// A walk over the registry: every op has a printed kernel, or stands in the list of those that have
// none; and what its samples give is right.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/backend/cuda_kernels/sample_nodes.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/has.h"

namespace ridge::test {
namespace {

// Served by libraries, by tensor cores, by their plain form, or by nothing but the caller.
const std::set<std::string> kWithoutKernel = {"attention",
                                              "attention_grad",
                                              "avg_pool2d",
                                              "avg_pool2d_grad",
                                              "batch_norm",
                                              "batch_norm_grad",
                                              "batch_norm_stats",
                                              "conv2d",
                                              "conv2d_grad_input",
                                              "conv2d_grad_weight",
                                              "conv2d_i8",
                                              "conv2d_norm_grad",
                                              "fused_conv2d",
                                              "fused_matmul",
                                              "input",
                                              "matmul_i8",
                                              "max_pool2d",
                                              "max_pool2d_grad",
                                              "norm_conv2d",
                                              "pointwise_depthwise",
                                              "reduce_sum_i8"};

TEST(PrintedRegistry, EveryOpHasAKernelOrIsListed) {
  std::set<std::string> without;
  Cases all;
  for (const std::string& name : registry().names())
    for (const SampleNode& each : sample_nodes(name)) {
      if (each.operands.empty() ? all.add(each.node(), 1, Fill::kTame)
                                : all.add(each.node(), each.operands))
        continue;
      without.insert(name);
      if (!kWithoutKernel.contains(name))
        ADD_FAILURE() << name << " has no kernel: it " << all.refusal() << "\n" << each.where;
    }
  EXPECT_EQ(without, kWithoutKernel);
  all.expect_results();
}

TEST(PrintedRegistry, AllKernelsCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  std::map<std::string, cuda::PrintedKernel> kernels;
  for (const std::string& name : registry().names())
    for (const SampleNode& each : sample_nodes(name)) {
      cuda::Printing printing = cuda::print_kernel(each.node(), kH200);
      if (printing.kernel) kernels.emplace(printing.kernel->name, std::move(*printing.kernel));
    }
  EXPECT_GE(kernels.size(), 100u);
  std::vector<cuda::PrintedKernel> all;
  for (auto& [name, kernel] : kernels) all.push_back(std::move(kernel));
  expect_compile(all);
}

// More elements than 32 bits count: of these no test runs.
TEST(PrintedRegistry, KernelsOfLargeTensorsCountIn64Bits) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Graph graph("large");
  constexpr int64_t kRows = 1 << 20, kColumns = 3001;
  const Value x = input(graph, "x", {DType::kBF16, {kRows, kColumns}});
  const Value at = input(graph, "at", {DType::kI32, {kRows}});
  // The last of these count in units of 16 bytes, or in 64 bits anyway.
  const std::vector<Value> large = {transpose(x, {1, 0}),
                                    slice(x, {1, 3}, {kRows, kColumns}, {1, 1}),
                                    pad(x, {1, 1}, {0, 0}),
                                    concat({x, x}, 1),
                                    one_hot(at, 5000),
                                    gather(x, at),
                                    copy(x),
                                    constant(graph, x.type(), 1.0),
                                    scatter_add(x, at, 0, 50257),
                                    reduce_sum(x, {1}),
                                    reduce_sum(x, {0}),
                                    argmax(x, 0),
                                    softmax(x)};
  std::vector<cuda::PrintedKernel> kernels;
  for (size_t i = 0; i < large.size(); ++i) {
    cuda::Printing printing = cuda::print_kernel(*large[i].node, kH200);
    ASSERT_TRUE(printing.kernel) << printing.refusal;
    if (i < 6) {
      EXPECT_THAT(printing.kernel->source, has("(uint64_t "));
    }
    kernels.push_back(std::move(*printing.kernel));
  }
  expect_compile(kernels);
}

}  // namespace
}  // namespace ridge::test
