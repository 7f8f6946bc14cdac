// Products and convolutions of f32 with the loops that read them: the bits of the two nodes apart,
// by every choice, for any number of threads.
#include <gtest/gtest.h>

#include <set>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/compare.h"
#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

Graph compiled(const Graph& graph, Backend& backend, bool fuses) {
  Graph made = graph.clone();
  PipelineOptions options;
  if (!fuses) options.off = {"fuse_epilogues"};
  options.verify_each = true;
  run_pipeline(made, backend, options);
  return made;
}

const Node* joint_node(const Graph& graph) {
  for (const auto& node : graph.nodes())
    if (node->is<FusedMatMul>() || node->is<FusedConv2d>()) return node.get();
  return nullptr;
}

// Some of: a bias, a residual, a factor of all, an activation. One op alone makes no loop.
Value with_loop(CaseBuilder& b, Value y) {
  int64_t kind = b.random().integer(1, 15);
  if (kind == 4 || kind == 8) kind |= 1;
  if ((kind & 1) != 0) y = y + broadcast(b.input({y.dim(-1)}), y.shape());
  if ((kind & 2) != 0) y = y * broadcast(b.input({}), y.shape());
  if ((kind & 4) != 0) y = maximum(y, constant_like(y, 0));
  if ((kind & 8) != 0) y = y + b.input(y.shape());
  return y;
}

// The names of the choices that ran the product with its loop.
std::set<std::string> check(const CaseBuilder& b) {
  const auto cpu = make_cpu_backend();
  const Graph& graph = const_cast<CaseBuilder&>(b).graph();
  const Graph apart = compiled(graph, *cpu, false), joint = compiled(graph, *cpu, true);
  EXPECT_EQ(joint_node(apart), nullptr) << print(apart);
  const Node* const node = joint_node(joint);
  if (node == nullptr) {
    ADD_FAILURE() << "nothing was joined\n" << print(joint);
    return {};
  }
  std::set<std::string> names;
  const int threads = num_threads();
  const std::vector<Choice> choices = cpu->candidates(*node);
  for (size_t choice = 0; choice < choices.size(); ++choice) {
    const ChooseKernel by_name = [&](const Node&, const std::vector<Choice>& offered) {
      for (size_t i = 0; i < offered.size(); ++i)
        if (offered[i].name == choices[choice].name) return i;
      return size_t{0};
    };
    set_num_threads(1);
    const NamedTensors wanted = evaluate(apart, *cpu, b.tensors(), by_name);
    for (const int count : {1, 2, 7}) {
      set_num_threads(count);
      EXPECT_EQ(bit_difference(evaluate(joint, *cpu, b.tensors(), by_name), wanted), "")
          << choices[choice].name << " by " << count << " threads\n"
          << print(joint);
    }
    set_num_threads(threads);
    names.insert(choices[choice].name);
  }
  return names;
}

TEST(CpuFusedProduct, MatricesHaveTheBitsOfTheNodesApart) {
  std::set<std::string> names;
  for (int i = 0; i < cases(60); ++i) {
    CaseBuilder b(DType::kF32, static_cast<uint64_t>(i));
    const auto size = [&](int64_t most) { return b.random().integer(1, most); };
    const int64_t m = size(b.random().chance(0.3) ? 700 : 40),
                  n = size(b.random().chance(0.3) ? 900 : 60),
                  k = size(b.random().chance(0.3) ? 900 : 60);
    const bool transposed = b.random().chance(0.5);
    const Shape of_b = transposed ? Shape{n, k} : Shape{k, n};
    const bool is_batch = m < 40 && b.random().chance(0.3);
    const Value y =
        is_batch ? matmul(b.input({3, m, k}), b.input({3, of_b[0], of_b[1]}), false, transposed)
                 : matmul(b.input({m, k}), b.input(of_b), false, transposed);
    b.finish({with_loop(b, y)});
    names.merge(check(b));
    if (HasFailure()) FAIL() << "seed " << i << ": " << m << " x " << k << " x " << n;
  }
  EXPECT_EQ(names, (std::set<std::string>{"packed_gemm", "expanded"}));
}

TEST(CpuFusedProduct, ConvolutionsHaveTheBitsOfTheNodesApart) {
  std::set<std::string> names;
  for (int i = 0; i < cases(60); ++i) {
    CaseBuilder b(DType::kF32, static_cast<uint64_t>(i));
    const auto size = [&](int64_t most) { return b.random().integer(1, most); };
    const int64_t kind = i % 4;  // of one pixel, by Winograd, depthwise, any other
    const int64_t kernel = kind == 0 ? 1 : kind == 1 ? 3 : size(4);
    const int64_t in = kind == 1 ? 16 * size(3) : size(20);
    const int64_t out = kind == 1 ? 16 * size(5) : size(40);
    const int64_t groups = kind == 2 ? in : kind == 3 ? size(3) : 1;
    const int64_t stride = kind < 2 ? 1 : size(2), padding = kind == 0 ? 0 : size(kernel) - 1;
    const Shape x{size(3), kernel + size(14), kernel + size(14), kind == 3 ? in * groups : in};
    const Shape w{kernel, kernel, kind == 2 ? 1 : in, kind == 2 ? in : out * groups};
    WindowFields window;
    window.stride = {stride, stride};
    window.padding = {padding, padding, padding, padding};
    b.finish({with_loop(b, conv2d(b.input(x), b.input(w), window, groups))});
    names.merge(check(b));
    if (HasFailure()) FAIL() << "seed " << i;
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"gemm", "winograd", "depthwise", "im2col_gemm", "expanded"}));
}

TEST(CpuFusedProduct, OthersStayApart) {
  const auto cpu = make_cpu_backend();
  const auto is_joined = [&](auto build) {
    CaseBuilder b(DType::kF32, 1);
    const Value y = matmul(b.input({6, 5}), b.input({5, 8}));
    b.finish(build(b, y));
    return joint_node(compiled(b.graph(), *cpu, true)) != nullptr;
  };
  EXPECT_TRUE(is_joined([](CaseBuilder&, Value y) { return std::vector{y * 2.0}; }));
  // A product that somebody wants besides; sums of its rows.
  EXPECT_FALSE(is_joined([](CaseBuilder&, Value y) { return std::vector{y * 2.0, y}; }));
  EXPECT_FALSE(
      is_joined([](CaseBuilder&, Value y) { return std::vector{reduce_sum(y * 2.0, {1})}; }));
}

}  // namespace
}  // namespace ridge::test
