// Gradients of lookups that are added to another gradient: no table of zeros, the same sums.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"

namespace ridge::test {
namespace {

int64_t count_ops(const Graph& graph, std::string_view name) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == name;
  });
}

// A table that is looked up and multiplied with, as the tied one of a language model, and the
// gradient with respect to it.
Graph tied_table(int64_t rows, int64_t count) {
  Graph graph;
  const Value table = input(graph, "table", {DType::kF32, {rows, 4}});
  const Value ids = input(graph, "ids", {DType::kI32, {count}});
  const Value logits = matmul(embedding(table, ids), table, false, true);
  const Value gradient = gradients(reduce_sum(logits * logits), {{table}}).at(0);
  graph.add_output("gradient", gradient);
  return graph;
}

NamedTensors tied_inputs(int64_t rows) {
  NamedTensors inputs;
  Tensor table({DType::kF32, {rows, 4}}), ids({DType::kI32, {5}});
  for (int64_t i = 0; i < table.elements(); ++i) table.set(i, 0.25 * static_cast<double>(i % 7));
  const double chosen[] = {2, 0, 2, 1, 2};
  for (int64_t i = 0; i < 5; ++i) ids.set(i, chosen[i]);
  inputs.emplace("table", std::move(table));
  inputs.emplace("ids", std::move(ids));
  return inputs;
}

TEST(ScatterToSums, TheGradientOfATiedTableIsOneSum) {
  Graph graph = tied_table(8, 5);
  const auto backend = make_backend("cpu");
  const NamedTensors want = evaluate(graph, *make_backend("ref"), tied_inputs(8));
  run_pipeline(graph, *backend, {.verify_each = true});
  EXPECT_EQ(count_ops(graph, "scatter_add"), 1);
  EXPECT_EQ(count_ops(graph, "add") + count_ops(graph, "fused"), 1);  // twice the logits
  const NamedTensors got = evaluate(graph, *backend, tied_inputs(8));
  // Multiples of 2^-12 that f32 holds exactly: whatever the order, the sums are the same.
  for (int64_t i = 0; i < 32; ++i)
    EXPECT_EQ(got.at("gradient").at(i), want.at("gradient").at(i)) << i;
}

int64_t arena_of(Graph graph, Backend& backend) {
  ProgramGraphs graphs;
  graphs.state.push_back({"table", graph.find_input("table")->outputs[0], StateRole::kParameter});
  graphs.entries.push_back(std::move(graph));
  return make_plan(graphs, backend, {}).arena_bytes;
}

TEST(ScatterToSums, ThePlanHasNoSecondTable) {
  const auto backend = make_backend("cpu");
  const Graph plain = tied_table(4096, 1);
  Graph graph = plain.clone();
  run_pipeline(graph, *backend, {});
  const int64_t table = plain.find_input("table")->outputs[0].bytes();
  EXPECT_GE(arena_of(plain.clone(), *backend), 2 * table);
  EXPECT_LT(arena_of(std::move(graph), *backend), 7 * table / 4);  // logits take a quarter
}

TEST(ScatterToSums, RowsThatAreReadElsewhereStay) {
  Graph graph;
  const Value base = input(graph, "base", {DType::kF32, {6, 2}});
  const Value updates = input(graph, "updates", {DType::kF32, {3, 2}});
  const Value ids = input(graph, "ids", {DType::kI32, {3}});
  const Value rows = scatter_add(updates, ids, 0, 6);
  graph.add_output("rows", rows);
  graph.add_output("sum", base + rows);
  run_pipeline(graph, *make_backend("cpu"), {.verify_each = true});
  for (const auto& node : graph.nodes())
    if (node->is<ScatterAdd>()) {
      EXPECT_EQ(node->inputs.size(), 2u);
    }
}

TEST(ScatterToSums, TwoLookupsOfATableShareOneSum) {
  Graph graph;
  const Value updates = input(graph, "updates", {DType::kF32, {3, 2}});
  const Value ids = input(graph, "ids", {DType::kI32, {3}});
  const Value more = input(graph, "more", {DType::kI32, {3}});
  graph.add_output("sum", scatter_add(updates, ids, 0, 6) + scatter_add(updates, more, 0, 6));
  run_pipeline(graph, *make_backend("cpu"), {.verify_each = true});
  EXPECT_EQ(count_ops(graph, "scatter_add"), 2);
  EXPECT_EQ(count_ops(graph, "add") + count_ops(graph, "fused"), 0);
}

}  // namespace
}  // namespace ridge::test
