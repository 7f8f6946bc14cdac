// Losses in parts: the same losses and gradients, one part's logits at a time, and graphs that have
// to stay as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/compare.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// The parameters of a head and its loss.
struct Head {
  DType dtype = DType::kF64;
  int64_t batch = 2, length = 3, width = 4, vocab = 7;
  bool row_major = false;  ///< The weight is (width, vocab).
  bool bias = false;
  bool tied = false;  ///< The inputs are rows of the weight, looked up.
  bool scaled = false;
  double smoothing = 0.0;
  int64_t ignored_from = 0, ignored_to = 0;  ///< Targets that do not count.
};

struct Built {
  Graph graph;
  NamedTensors inputs;
};

Value weight_of(CaseBuilder& builder, const Head& head) {
  return builder.input(head.row_major ? Shape{head.width, head.vocab}
                                      : Shape{head.vocab, head.width});
}

// x0: the weight; outputs y0: each loss, y1: how many are right, then the gradients of their sum.
Built build(const Head& head, uint64_t seed) {
  CaseBuilder builder(head.dtype, seed);
  const Value weight = weight_of(builder, head);
  Value x;
  if (head.tied)
    x = embedding(weight,
                  builder.indices(DType::kI32, {head.batch, head.length}, 0, head.vocab - 1));
  else
    x = builder.input({head.batch, head.length, head.width});
  std::vector<Value> wanted{weight, x};
  Value logits = matmul(tanh(x), weight, false, !head.row_major);
  if (head.bias) {
    wanted.push_back(builder.input({head.vocab}));
    logits = logits + wanted.back();
  }
  const int64_t rows = head.batch * head.length;
  std::vector<double> labels;
  for (int64_t i = 0; i < rows; ++i)
    labels.push_back(i >= head.ignored_from && i < head.ignored_to
                         ? -100.0
                         : static_cast<double>(builder.random().integer(0, head.vocab - 1)));
  const Value y = builder.given({DType::kI64, {head.batch, head.length}}, labels);
  const Value each = cross_entropy(logits, y, {.label_smoothing = head.smoothing});
  Value loss = reduce_sum(each);
  if (head.scaled) loss = loss * builder.input({}, 0.5, 8.0);
  std::vector<Value> outputs{each, reduce_sum(cast(eq(argmax(logits, -1), y), head.dtype))};
  for (const Value& gradient : gradients(loss, wanted)) outputs.push_back(gradient);
  builder.finish(outputs);
  return {std::move(builder.graph()), builder.tensors()};
}

// Without the passes that change bits nowhere, so that the reference runs the pass's own graph.
bool chunk(Graph& graph, int64_t chunks, Backend& backend, bool all_passes = false) {
  PipelineOptions options{.loss_chunks = chunks, .verify_each = true};
  if (!all_passes) options.off = {"all"};
  const auto reports = run_pipeline(graph, backend, options);
  return std::any_of(reports.begin(), reports.end(), [](const PassReport& report) {
    return report.name == "chunk_loss" && report.changed;
  });
}

int64_t count_ops(const Graph& graph, std::string_view name) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == name;
  });
}

// The most logits that a product makes at once.
int64_t largest_logits(const Graph& graph, int64_t vocab) {
  int64_t rows = 0;
  for (const auto& node : graph.nodes())
    if (node->is<CrossEntropy>()) {
      EXPECT_EQ(node->inputs[0].dim(-1), vocab);
      rows = std::max(rows, node->inputs[0].type().elements() / vocab);
    }
  return rows;
}

Head random_head(Random& random) {
  Head head;
  head.dtype = random.chance(0.5) ? DType::kF64 : DType::kF32;
  head.batch = random.integer(1, 4);
  head.length = random.integer(1, 9);
  head.width = random.integer(1, 9);
  // Sizes that are equal by chance must not be taken for one another.
  head.vocab =
      random.chance(0.3) ? std::max<int64_t>(2, head.batch * head.length) : random.integer(2, 12);
  if (random.chance(0.3)) head.width = random.chance(0.5) ? head.vocab : head.batch * head.length;
  head.row_major = random.chance(0.5);
  head.tied = !head.row_major && random.chance(0.5);
  head.bias = random.chance(0.5);
  head.scaled = random.chance(0.5);
  head.smoothing = random.chance(0.3) ? 0.1 : 0.0;
  const int64_t rows = head.batch * head.length;
  head.ignored_from = random.integer(0, rows);
  head.ignored_to = random.integer(0, rows);
  return head;
}

std::string text_of(const Head& head, int64_t chunks) {
  return fmt::format("{} {}x{} width {} vocab {} row_major {} bias {} tied {} scaled {} in {}",
                     name_of(head.dtype),
                     head.batch,
                     head.length,
                     head.width,
                     head.vocab,
                     head.row_major,
                     head.bias,
                     head.tied,
                     head.scaled,
                     chunks);
}

// Sizes that the parts do not divide, more parts than rows, rows that do not count.
TEST(ChunkLoss, RandomHeadsKeepTheirLossesAndGradients) {
  const auto ref = make_backend("ref"), cpu = make_backend("cpu");
  Random random(11);
  int64_t cut = 0;
  for (int i = 0; i < cases(100); ++i) {
    const Head head = random_head(random);
    const int64_t chunks = random.integer(2, 12), rows = head.batch * head.length;
    SCOPED_TRACE(text_of(head, chunks));
    const Built built = build(head, static_cast<uint64_t>(i));
    Graph parts = built.graph.clone();
    EXPECT_EQ(chunk(parts, chunks, *ref), rows >= 2);
    const int64_t most = std::min(chunks, rows);
    EXPECT_EQ(largest_logits(parts, head.vocab), (rows + most - 1) / most);
    EXPECT_EQ(count_ops(parts, "matmul"), rows >= 2 ? 3 * most : 3);
    cut += most > 1;

    const NamedTensors want = evaluate(built.graph, *ref, built.inputs);
    const NamedTensors got = evaluate(parts, *ref, built.inputs);
    // Rows are what they were; sums over them are made in another order.
    EXPECT_TRUE(got.at("y0").same_bits(want.at("y0")));
    EXPECT_TRUE(got.at("y1").same_bits(want.at("y1")));
    EXPECT_TRUE(got.at("y3").same_bits(want.at("y3")));
    const double tolerance = head.dtype == DType::kF64 ? 1e-12 : 1e-5;
    for (const auto& [name, tensor] : want)
      EXPECT_EQ(difference(got.at(name), tensor, tolerance), "") << name;

    // And through all passes, by kernels that give a row its bits whatever others there are. A
    // part of one row has no loop over rows.
    Graph whole = built.graph.clone(), compiled = built.graph.clone();
    chunk(whole, 1, *cpu, true);
    chunk(compiled, chunks, *cpu, true);
    const NamedTensors plain = evaluate(whole, *cpu, built.inputs);
    for (const auto& [name, tensor] : evaluate(compiled, *cpu, built.inputs)) {
      EXPECT_EQ(difference(tensor, plain.at(name), 10 * tolerance), "") << name;
      if (rows / most >= 2 && (name == "y0" || name == "y3")) {
        EXPECT_TRUE(tensor.same_bits(plain.at(name))) << name;
      }
    }
  }
  EXPECT_GE(cut, cases(100) / 2);
}

// The gradient along a direction, by the losses of the parts themselves.
TEST(ChunkLoss, GradientsAreThoseOfFiniteDifferences) {
  const auto ref = make_backend("ref");
  for (const bool tied : {false, true}) {
    const Built built = build({.batch = 2,
                               .length = 5,
                               .width = 4,
                               .vocab = 9,
                               .bias = true,
                               .tied = tied,
                               .smoothing = 0.1,
                               .ignored_from = 6,
                               .ignored_to = 9},
                              3);
    Graph parts = built.graph.clone();
    ASSERT_TRUE(chunk(parts, 4, *ref));
    const std::string name = parts.inputs()[0]->op_as<Input>().input_name;
    const auto sum_at = [&](double step) {
      NamedTensors moved = built.inputs;
      Tensor& weight = moved.at(name);
      for (int64_t i = 0; i < weight.elements(); ++i)
        weight.set(i, weight.at(i) + step * std::cos(static_cast<double>(i)));
      const Tensor each = evaluate(parts, *ref, moved).at("y0");
      double sum = 0;
      for (int64_t i = 0; i < each.elements(); ++i) sum += each.at(i);
      return sum;
    };
    const Tensor gradient = evaluate(parts, *ref, built.inputs).at("y2");
    double along = 0;
    for (int64_t i = 0; i < gradient.elements(); ++i)
      along += gradient.at(i) * std::cos(static_cast<double>(i));
    const double h = 1e-3;  // central differences, extrapolated once
    const double wide = (sum_at(h) - sum_at(-h)) / (2 * h);
    const double narrow = (sum_at(h / 2) - sum_at(-h / 2)) / h;
    EXPECT_NEAR((4 * narrow - wide) / 3, along, 1e-8 * std::max(1.0, std::fabs(along)));
    EXPECT_GT(std::fabs(along), 1e-2);
  }
}

int64_t arena_of(Graph graph, int64_t chunks) {
  const auto backend = make_backend("cpu");
  run_pipeline(graph, *backend, {.loss_chunks = chunks});
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  return make_plan(graphs, *backend, {}).arena_bytes;
}

TEST(ChunkLoss, OnePartsLogitsAreThereAtATime) {
  const Built built =
      build({.dtype = DType::kF32, .batch = 4, .length = 256, .width = 8, .vocab = 1000}, 1);
  const int64_t logits = int64_t{1024} * 1000 * 4;
  const int64_t whole = arena_of(built.graph.clone(), 1);
  EXPECT_GE(whole, logits);
  int64_t last = whole;
  for (const int64_t chunks : {2, 4, 8, 16}) {
    const int64_t bytes = arena_of(built.graph.clone(), chunks);
    EXPECT_LT(bytes, last) << chunks;
    EXPECT_LE(bytes, whole - logits + logits / chunks + (int64_t{1} << 18)) << chunks;
    last = bytes;
  }
}

TEST(ChunkLoss, PartsHaveSitesOfTheirOwnAndAreNotMerged) {
  Graph graph = build({.dtype = DType::kF32, .batch = 1, .length = 6}, 1).graph;
  ASSERT_TRUE(chunk(graph, 2, *make_backend("cpu"), true));
  EXPECT_EQ(count_ops(graph, "matmul"), 6);
  EXPECT_EQ(count_ops(graph, "barrier"), 4);  // each loss, those right, and two gradients
  const std::string text = print(graph);
  for (const char* site : {"\":matmul.0/part.0:matmul.0\"", "\":matmul.0/part.1:matmul.0\""})
    EXPECT_NE(text.find(site), std::string::npos) << site << "\n" << text;
  const Graph again = parse_graph(text);
  EXPECT_EQ(print(again), text);
}

// Nothing is gained where logits are there as a whole anyway, or where there is one row.
TEST(ChunkLoss, WhatIsWantedAsAWholeStays) {
  const auto stays = [](const std::function<void(Graph&, Value, Value)>& add_rest, int64_t rows) {
    Graph graph;
    const Value x = input(graph, "x", {DType::kF32, {rows, 4}});
    const Value w = input(graph, "w", {DType::kF32, {4, 6}});
    const Value logits = matmul(x, w);
    add_rest(graph, logits, input(graph, "labels", {DType::kI64, {rows}}));
    const std::string before = print(graph);
    EXPECT_FALSE(chunk(graph, 3, *make_backend("ref")));
    return print(graph) == before;
  };
  const auto loss = [](Graph& graph, Value logits, Value labels) {
    graph.add_output("loss", reduce_sum(cross_entropy(logits, labels)));
  };
  EXPECT_TRUE(stays(loss, 1));
  EXPECT_TRUE(stays([](Graph& g, Value logits, Value) { g.add_output("y", logits); }, 5));
  EXPECT_TRUE(stays(
      [&](Graph& graph, Value logits, Value labels) {
        loss(graph, logits, labels);
        graph.add_output("logits", logits);
      },
      5));
  EXPECT_TRUE(stays(
      [&](Graph& graph, Value logits, Value labels) {
        loss(graph, logits, labels);
        graph.add_output("columns", transpose(logits, {1, 0}));
      },
      5));
  // A mean over the rows comes back to each of them.
  EXPECT_TRUE(stays(
      [&](Graph& graph, Value logits, Value labels) {
        loss(graph, logits - reduce_mean(logits, {0}, true), labels);
      },
      5));
}

}  // namespace
}  // namespace ridge::test
