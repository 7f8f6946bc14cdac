// Printed kernels of lists of tensors: the CPU's bits for tensors of any lengths, in as many
// launches as their addresses need; and no local memory where there is NVRTC.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::print_kernel;
using cuda::PrintedKernel;

enum class Body : uint8_t {
  kAdamW,   ///< With 16-bit copies: p, m, v, g -> p, m, v, copy.
  kBytes,   ///< A body of 16 bits alone.
  kTotals,  ///< A sum of squares, the largest element, and the elements doubled.
  kNorm,    ///< A sum of squares alone.
};

Graph body_of(Body kind) {
  Graph body("each");
  size_t number = 0;
  const auto add = [&](DType dtype, Shape shape) {
    return input(body, name_of_number(number++), {dtype, std::move(shape)});
  };
  const auto own = [&](DType dtype = DType::kF32) { return add(dtype, {1}); };
  std::vector<Value> results;
  if (kind == Body::kAdamW) {
    const Value rate_in = add(DType::kF32, {}), fine_in = add(DType::kBool, {});
    const Value p = own(), m = own(), v = own(), g = own();
    const Value rate = broadcast(rate_in, {1}), fine = broadcast(fine_in, {1});
    const Value m1 = m * 0.9 + g * 0.1, v1 = v * 0.999 + g * g * 0.001;
    const Value moved = where(fine, p - m1 / (sqrt(v1) + 1e-8) * rate, p);
    results = {moved, where(fine, m1, m), where(fine, v1, v), cast(moved, DType::kBF16)};
  } else if (kind == Body::kBytes) {
    const Value rate_in = add(DType::kBF16, {});
    const Value x = own(DType::kBF16), y = own(DType::kF16);
    results = {x * broadcast(rate_in, {1}) + cast(y, DType::kBF16), neg(y)};
  } else {
    const Value x = own();
    results = {reduce_sum(x * x)};
    if (kind == Body::kTotals) results = {reduce_sum(x * x), x + x, reduce_max(gelu(x))};
  }
  for (size_t i = 0; i < results.size(); ++i) body.add_output(name_of_number(i), results[i]);
  return body;
}

const Node& list_of(Graph& graph, Body kind, const std::vector<int64_t>& lengths) {
  const Graph body = body_of(kind);
  FusedEach op;
  op.body = print(body);
  std::vector<Value> inputs;
  const auto add = [&](const Node& node, const Shape& shape) {
    inputs.push_back(input(graph, name_of_number(inputs.size()), {node.outputs[0].dtype, shape}));
  };
  for (const Node* node : body.inputs())
    if (node->outputs[0].shape.empty()) add(*node, {});
  for (const int64_t length : lengths)
    for (const Node* node : body.inputs())
      if (!node->outputs[0].shape.empty())
        add(*node, length % 2 == 0 ? Shape{2, length / 2} : Shape{length});
  return graph.add(std::make_shared<const FusedEach>(std::move(op)), std::move(inputs));
}

// Lengths at which packs, pieces, chunks and stages end, and others.
std::vector<int64_t> random_lengths(std::mt19937_64& random, size_t count, bool is_whole) {
  constexpr int64_t kEnds[] = {
      2, 3, 4, 5, 7, 8, 64, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 8193};
  std::vector<int64_t> lengths;
  while (lengths.size() < count) {
    int64_t length = random() % 3 == 0 ? kEnds[random() % std::size(kEnds)]
                                       : static_cast<int64_t>(2 + random() % 700);
    if (is_whole) length = (length + 7) / 8 * 8;
    lengths.push_back(length);
  }
  return lengths;
}

constexpr Body kBodies[] = {Body::kAdamW, Body::kBytes, Body::kTotals, Body::kNorm};

TEST(PrintedLists, RandomListsGiveTheBitsOfTheCpu) {
  std::mt19937_64 random(5);
  Cases all;
  for (int seed = 0; seed < cases(5); ++seed)
    for (const Body body : kBodies) {
      Graph graph("list");
      const auto lengths = random_lengths(random, 1 + random() % 12, seed % 3 == 1);
      const Fill how = seed % 2 == 0 ? Fill::kTame : Fill::kSpecial;
      ASSERT_TRUE(all.add(list_of(graph, body, lengths), static_cast<uint64_t>(seed), how))
          << all.refusal();
    }
  all.expect_bits_of_cpu();
}

// One tensor of several stages among small ones.
TEST(PrintedLists, ALongTensorIsReducedInStages) {
  Cases all;
  for (const Body body : {Body::kTotals, Body::kNorm}) {
    Graph graph("list");
    const int64_t length = is_full_scale() ? 2048 * 2048 + 5 : (1 << 18) + 3;
    ASSERT_TRUE(all.add(list_of(graph, body, {3, length, 2049, 4096}), 3, Fill::kTame));
  }
  all.expect_bits_of_cpu();
}

// 4 KiB of a launch are for addresses.
TEST(PrintedLists, ManyTensorsTakeSeveralLaunches) {
  Cases all;
  std::mt19937_64 random(6);
  const std::vector<std::pair<Body, size_t>> launches = {{Body::kAdamW, 3}, {Body::kNorm, 2}};
  for (const auto& [body, count] : launches) {
    Graph graph("list");
    const auto lengths = random_lengths(random, 148, false);
    const Node& node = list_of(graph, body, lengths);
    const PrintedKernel kernel = *print_kernel(node, kH200).kernel;
    EXPECT_EQ(kernel.launches.size(), count) << kernel.source;
    for (const cuda::KernelLaunch& launch : kernel.launches)
      EXPECT_LE(launch.operands.size(), 512u);
    ASSERT_TRUE(all.add(node, 1, Fill::kTame));
  }
  all.expect_bits_of_cpu();
}

TEST(PrintedLists, TheyCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  std::mt19937_64 random(7);
  // Four blocks of 256 threads share a multiprocessor's registers: an optimizer has enough loads
  // under way.
  for (const auto& [bodies, most] : {std::pair{std::array{Body::kAdamW, Body::kNorm}, 64},
                                     {{Body::kBytes, Body::kTotals}, 128}}) {
    std::vector<PrintedKernel> kernels;
    for (const Body body : bodies)
      for (const bool is_whole : {false, true}) {
        Graph graph("list");
        const Node& node = list_of(graph, body, random_lengths(random, 90, is_whole));
        kernels.push_back(*print_kernel(node, kH200).kernel);
      }
    expect_compile(kernels, [&](const PrintedKernel&, const std::string&, const KernelUse& use) {
      EXPECT_LE(use.registers, most);
    });
  }
}

// The source has lengths, and no sites or addresses.
TEST(PrintedLists, TheNameIsThatOfBodyAndLengths) {
  const auto name = [](const std::vector<int64_t>& lengths) {
    Graph graph("list");
    return print_kernel(list_of(graph, Body::kNorm, lengths), kH200).kernel->name;
  };
  EXPECT_EQ(name({5, 6}), name({5, 6}));
  EXPECT_NE(name({5, 6}), name({6, 5}));
}

}  // namespace
}  // namespace ridge::test
