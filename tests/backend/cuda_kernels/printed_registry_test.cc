// A walk over the registry: every op has a printed kernel, or stands in the list of those that have
// none; and what its samples give is right.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/printed_cubin.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/support/op_audit.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// Served by libraries, by tensor cores, by their plain form, or by nothing but the caller.
const std::set<std::string> kWithoutKernel = {
    "conv2d_norm_grad", "fused_matmul", "input", "norm_conv2d"};

// Samples for which the op's kernel is refused.
bool is_refused(const Node& node) {
  return node.op->name() == "batch_norm_stats" && size_of(node.outputs[0].dtype) == 2;
}

// Calls visit(node, builder) for each sample of the op: in f32 and one other of its dtypes, in the
// full form in all of them.
template <typename Visit>
void visit_samples(const std::string& name, Visit visit) {
  const DTypeSet dtypes = registry().create(name)->traits().dtypes;
  std::vector<DType> accepted;
  for (const DType dtype : kAllDTypes)
    if (dtypes.has(dtype)) accepted.push_back(dtype);
  size_t number = 0;
  for (const OpSample& sample : all_samples()) {
    if (sample.op != name) continue;
    ++number;
    for (size_t i = 0; i < accepted.size(); ++i) {
      const bool is_drawn = i == number % accepted.size() || accepted[i] == DType::kF32;
      if (!is_drawn && !is_full_scale()) continue;
      CaseBuilder builder(accepted[i], 17 + i);
      builder.finish(sample.build(builder));
      for (const auto& node : builder.graph().nodes())
        if (node->op->name() == name) visit(*node, builder);
    }
  }
}

// The operands of the node, as the reference makes them.
NamedTensors operands_of(const Node& node, CaseBuilder& builder) {
  Graph open = builder.graph().clone();
  NamedTensors operands;
  const Node& copy = *open.nodes()[static_cast<size_t>(node.id)];
  for (size_t i = 0; i < copy.inputs.size(); ++i)
    open.add_output(fmt::format("operand{}", i), copy.inputs[i]);
  const NamedTensors all = evaluate(open, *make_backend("ref"), builder.tensors());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    operands.emplace(name_of_number(i), all.at(fmt::format("operand{}", i)));
  return operands;
}

TEST(PrintedRegistry, EveryOpHasAKernelOrIsListed) {
  std::set<std::string> without;
  Cases all;
  for (const std::string& name : registry().names())
    visit_samples(name, [&](const Node& node, CaseBuilder& builder) {
      if (is_refused(node)) return;
      if (node.inputs.empty() ? all.add(node, 1, Fill::kTame)
                              : all.add(node, operands_of(node, builder)))
        return;
      without.insert(name);
      if (!kWithoutKernel.contains(name))
        ADD_FAILURE() << name << " has no kernel: it " << all.refusal() << "\n" << print(node);
    });
  EXPECT_EQ(without, kWithoutKernel);
  all.expect_results();
}

// Each for one of three generations of devices, in turn; in the full form for all of them.
void expect_compile(const std::vector<cuda::PrintedKernel>& kernels) {
  const std::vector<std::string> architectures = {"sm_80", "sm_90", "sm_100"};
  std::vector<Compilation> compilations;
  for (size_t number = 0; number < kernels.size(); ++number)
    for (size_t i = 0; i < architectures.size(); ++i)
      if (is_full_scale() || i == number % architectures.size())
        compilations.push_back({&kernels[number], architectures[i]});
  compile_all(compilations, [](const Compilation& each, const test::KernelUse& use) {
    EXPECT_EQ(use.local_bytes, 0) << each.architecture << ", " << use.registers << " registers\n"
                                  << each.kernel->source;
    // 48 KiB, and what sm_90 and later keep for themselves.
    EXPECT_LE(use.shared_bytes, 49 << 10) << each.kernel->source;
  });
}

TEST(PrintedRegistry, AllKernelsCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  std::map<std::string, cuda::PrintedKernel> kernels;
  for (const std::string& name : registry().names())
    visit_samples(name, [&](const Node& node, CaseBuilder&) {
      cuda::Printing printing = cuda::print_kernel(node);
      if (printing.kernel) kernels.emplace(printing.kernel->name, std::move(*printing.kernel));
    });
  EXPECT_GE(kernels.size(), 100u);
  // Most are one op in many dtypes: some, spread over all, but in the full form.
  const size_t step = is_full_scale() ? 1 : 5;
  size_t number = 0;
  std::vector<cuda::PrintedKernel> chosen;
  for (auto& [name, kernel] : kernels)
    if (number++ % step == 0) chosen.push_back(std::move(kernel));
  expect_compile(chosen);
}

// As large as in networks, whose channels come in fours, and odd ones.
TEST(PrintedRegistry, BatchNormsOfNetworksCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  const Shape shapes[] = {{64, 32, 32, 64}, {8, 112, 112, 96}, {8, 7, 7, 1280}, {64, 4, 4, 99}};
  std::vector<cuda::PrintedKernel> kernels;
  for (const auto& [x_dtype, dy_dtype, channel_dtype] :
       {std::tuple(DType::kBF16, DType::kBF16, DType::kF32),
        std::tuple(DType::kF16, DType::kF32, DType::kF32),
        std::tuple(DType::kF32, DType::kF32, DType::kF32),
        std::tuple(DType::kF64, DType::kF64, DType::kF64)})
    for (const Shape& shape : shapes) {
      Graph graph("norms");
      const TensorType channel{channel_dtype, {shape.back()}};
      const Value x = input(graph, "x", {x_dtype, shape});
      const Value dy = input(graph, "dy", {dy_dtype, shape});
      std::vector<Value> of_channels;
      for (const char* name : {"gamma", "beta", "mean", "variance"})
        of_channels.push_back(input(graph, name, channel));
      const Value gamma = of_channels[0], beta = of_channels[1];
      BatchNormGrad grad;
      grad.activation = "relu6";
      const Value values[] = {
          add_node(BatchNormStats{}, {x, gamma, beta}),
          add_node(std::move(grad), {x, gamma, beta, of_channels[2], of_channels[3], dy})};
      for (const Value value : values) {
        cuda::Printing printing = cuda::print_kernel(*value.node);
        ASSERT_TRUE(printing.kernel) << printing.refusal;
        kernels.push_back(std::move(*printing.kernel));
      }
    }
  expect_compile(kernels);
}

// More elements than 32 bits count: of these no test runs.
TEST(PrintedRegistry, KernelsOfLargeTensorsCountIn64Bits) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Graph graph("large");
  constexpr int64_t kRows = 1 << 20, kColumns = 3001;
  const Value x = input(graph, "x", {DType::kBF16, {kRows, kColumns}});
  const Value images = input(graph, "images", {DType::kBF16, {1 << 12, 64, 128, 72}});
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
                                    softmax(x),
                                    max_pool2d(images, {{2, 2}, {{2, 2}, {0, 0, 0, 0}, {1, 1}}})};
  std::vector<cuda::PrintedKernel> kernels;
  for (size_t i = 0; i < large.size(); ++i) {
    cuda::Printing printing = cuda::print_kernel(*large[i].node);
    ASSERT_TRUE(printing.kernel) << printing.refusal;
    if (i < 6) {
      EXPECT_NE(printing.kernel->source.find("(uint64_t "), std::string::npos)
          << printing.kernel->source;
    }
    kernels.push_back(std::move(*printing.kernel));
  }
  expect_compile(kernels);
}

}  // namespace
}  // namespace ridge::test
