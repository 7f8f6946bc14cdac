// Products with the loops behind them, as one node: which join, and that they keep their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

Graph compiled(const Graph& graph, std::vector<std::string> off = {}) {
  Graph made = graph.clone();
  const auto cpu = make_cpu_backend();
  PipelineOptions options;
  options.off = std::move(off);
  options.verify_each = true;
  run_pipeline(made, *cpu, options);
  return made;
}

int count_ops(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes().begin(),
                                        graph.nodes().end(),
                                        [&](const auto& node) { return node->op->name() == op; }));
}

struct Case {
  Shape x, w;
  WindowFields window;
  int64_t groups = 1;
};

// Those of each kernel: of one pixel, depthwise, Winograd's, and patches, of groups too.
Case random_case(uint64_t seed) {
  Random random(seed);
  const int64_t images = random.integer(1, 2), rows = random.integer(5, 20),
                columns = random.integer(5, 20);
  const int64_t kind = random.integer(0, 4), in = 16 * random.integer(1, 4),
                out = 16 * random.integer(1, 5) + (kind == 2 ? 0 : random.integer(0, 3));
  const WindowFields same{.stride = {1, 1}, .padding = {1, 1, 1, 1}};
  const WindowFields halved{.stride = {2, 2}, .padding = {1, 1, 1, 1}};
  const Shape x{images, rows, columns, in};
  if (kind == 0) return {x, {1, 1, in, out}, {}};
  if (kind == 1) return {x, {3, 3, 1, in}, random.chance(0.5) ? same : halved, in};
  if (kind == 2) return {x, {3, 3, in, out}, same};
  if (kind == 3) return {x, {3, 3, in, out}, halved};
  return {x, {random.chance(0.5) ? 1 : 3, 3, in / 4, 32}, {.padding = {0, 1, 0, 1}}, 4};
}

// A matrix product: of a batch, of a transposed factor, with few rows or columns.
Value matrix_product(CaseBuilder& b, Random& random) {
  const int64_t sizes[] = {1, 3, 17, 64, 200};
  const auto size = [&] { return sizes[random.integer(0, 4)]; };
  const int64_t m = size(), k = 2 * size(), n = 1 + size();
  const bool transposed = random.chance(0.5);
  const bool is_batch = random.chance(0.3);
  Shape a{m, k}, w = transposed ? Shape{n, k} : Shape{k, n};
  if (is_batch) a.insert(a.begin(), 3), w.insert(w.begin(), 3);
  // A product of a batch by one matrix is one of rows, and reshaped.
  if (!is_batch && random.chance(0.5)) a.insert(a.begin(), 2);
  return matmul(b.input(a), b.input(w), false, transposed);
}

Value convolution(CaseBuilder& b, const Case& c) {
  return conv2d(b.input(c.x), b.input(c.w), c.window, c.groups);
}

// relu((y + bias) * scale + other), and the same before the ReLU.
void finish_with_loop(CaseBuilder& b, Value y) {
  const Value sum = (y + b.input({y.dim(-1)})) * b.input({y.dim(-1)}) + b.input(y.shape());
  b.finish({relu(sum), sum});
}

TEST(FuseEpilogues, TheBitsAreThoseOfBoth) {
  const int threads = num_threads();
  const auto cpu = make_cpu_backend();
  for (int i = 0; i < cases(60); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    CaseBuilder b(i % 5 == 4 ? DType::kF64 : DType::kF32, seed);
    const bool is_matrix = i % 3 == 0;
    finish_with_loop(b,
                     is_matrix ? matrix_product(b, b.random()) : convolution(b, random_case(seed)));
    const Graph joined = compiled(b.graph()), apart = compiled(b.graph(), {"fuse_epilogues"});
    ASSERT_EQ(count_ops(joined, is_matrix ? "fused_matmul" : "fused_conv2d"), 1) << print(joined);
    ASSERT_EQ(count_ops(apart, is_matrix ? "matmul" : "conv2d"), 1) << print(apart);
    const NamedTensors wanted = evaluate(apart, *cpu, b.tensors());
    for (const int count : {1, 2, 7}) {
      set_num_threads(count);
      EXPECT_EQ(bit_difference(evaluate(joined, *cpu, b.tensors()), wanted), "")
          << "seed " << seed << " by " << count << " threads\n"
          << print(joined);
    }
    set_num_threads(threads);
    if (HasFailure()) return;
  }
}

Graph graph_of(const std::function<void(CaseBuilder&, Value y)>& finish) {
  CaseBuilder b(DType::kF32, 1);
  finish(b, convolution(b, {{1, 6, 6, 16}, {3, 3, 16, 16}, {.padding = {1, 1, 1, 1}}}));
  return compiled(b.graph());
}

TEST(FuseEpilogues, ABiasAloneJoins) {
  const Graph graph =
      graph_of([](CaseBuilder& b, Value y) { b.finish({y + b.input({y.dim(-1)})}); });
  EXPECT_EQ(count_ops(graph, "fused_conv2d"), 1) << print(graph);
  EXPECT_EQ(count_ops(graph, "fused") + count_ops(graph, "conv2d"), 0) << print(graph);
}

TEST(FuseEpilogues, ASumOfBranchesJoinsTheLaterOne) {
  const Graph graph = graph_of([](CaseBuilder& b, Value y) {
    const Value z = conv2d(relu(y + b.input({16})), b.input({1, 1, 16, 16}));
    const Value shortcut = conv2d(b.input({1, 6, 6, 8}), b.input({1, 1, 8, 16}));
    b.finish({relu(z + b.input({16}) + shortcut)});
  });
  EXPECT_EQ(count_ops(graph, "fused_conv2d"), 2) << print(graph);
  EXPECT_EQ(count_ops(graph, "conv2d"), 1) << print(graph);
  EXPECT_EQ(count_ops(graph, "fused"), 0) << print(graph);
}

// A product that rounds its factors has kernels of its own.
TEST(FuseEpilogues, RoundedProductsStayApart) {
  CaseBuilder b(DType::kF32, 1);
  MatMul op;
  op.round_to = DType::kBF16;
  const Value y = add_node(std::move(op), {b.input({9, 8}), b.input({8, 7})});
  b.finish({relu(y + b.input({7}))});
  EXPECT_EQ(count_ops(compiled(b.graph()), "matmul"), 1) << print(compiled(b.graph()));
}

TEST(FuseEpilogues, StepsOfATrainingStayApart) {
  CaseBuilder b(DType::kF32, 1);
  const Value w = b.input({8, 7});
  const Value y = relu(matmul(b.input({9, 8}), w) + b.input({7}));
  b.graph().add_output("loss", reduce_sum(y));
  b.graph().add_output("new", w * 0.5, "x0");
  EXPECT_EQ(count_ops(compiled(b.graph()), "matmul"), 1) << print(compiled(b.graph()));
}

TEST(FuseEpilogues, OthersStayApart) {
  const std::function<void(CaseBuilder&, Value)> others[] = {
      // Somebody else reads the convolution: the caller, or another loop.
      [](CaseBuilder& b, Value y) { b.finish({relu(y + b.input({16})), y}); },
      [](CaseBuilder& b, Value y) {
        const Value loop = relu(y + b.input({16}));
        b.finish({conv2d(loop, b.input({1, 1, 16, 16})) + y});
      },
      // It is summed, or becomes another dtype.
      [](CaseBuilder& b, Value y) { b.finish({reduce_sum(y * y)}); },
      [](CaseBuilder& b, Value y) { b.finish({gt(y + b.input({16}), constant_like(y, 0.0))}); },
  };
  for (const auto& finish : others) {
    const Graph graph = graph_of(finish);
    const auto& nodes = graph.nodes();
    EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
      return node->template is<Conv2d>() && node->outputs[0].shape == Shape{1, 6, 6, 16};
    })) << print(graph);
  }
}

}  // namespace
}  // namespace ridge::test
