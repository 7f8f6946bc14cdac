// The order of launches: what is made early and used late does not lie around.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/compile/plan.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"

namespace ridge::test {
namespace {

constexpr int64_t kRows = 512, kColumns = 128, kBig = kRows * kColumns * 4;

EntryPlan plan_of(Graph graph, std::vector<StateEntry> state) {
  ProgramGraphs graphs;
  graphs.state = std::move(state);
  graphs.entries.push_back(std::move(graph));
  return make_plan(graphs, *make_backend("cpu"), {}).entries[0];
}

int64_t step_of(const EntryPlan& plan, std::string_view op) {
  const auto at = std::find_if(
      plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) { return step.op == op; });
  return at - plan.steps.begin();
}

TEST(MemoryOrder, WhatIsUsedLateIsMadeLate) {
  Graph graph("main");
  const Value row = input(graph, "row", {DType::kF32, {1, kColumns}});
  const Value x = input(graph, "x", {DType::kF32, {kRows, kColumns}});
  const Value early = broadcast(exp(row), {kRows, kColumns});
  const Value chain = reduce_sum(matmul(x, matmul(transpose_last(x), x)), {1}, true);
  graph.add_output("y", reduce_sum(early * broadcast(chain, {kRows, kColumns})));
  const EntryPlan plan = plan_of(std::move(graph), {});
  EXPECT_GT(step_of(plan, "broadcast"), step_of(plan, "matmul"));
  // x and a product of its size, and never `early` beside them.
  EXPECT_LT(plan.peak_bytes, 3 * kBig);
}

TEST(MemoryOrder, AnUpdateWaitsForTheReadersOfTheOldValue) {
  const TensorType big{DType::kF32, {kRows, kColumns}};
  Graph graph("main");
  const Value w = input(graph, "w", big);
  const Value x = input(graph, "x", big);
  const Value wide = matmul(w, transpose_last(x));  // reads w, and is used at the very end
  const Value last = reduce_sum(exp(reduce_sum(w * x, {1})));
  graph.add_output("w.new", w * broadcast(reshape(last, {1, 1}), {kRows, kColumns}), "w");
  graph.add_output("y", reduce_sum(wide));
  const EntryPlan plan = plan_of(std::move(graph), {{"w", big, StateRole::kParameter}});
  size_t update = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].outputs[0].region == Region::kState) update = i;
  ASSERT_GT(update, 0u);
  for (size_t i = update + 1; i < plan.steps.size(); ++i)
    for (const Place& place : plan.steps[i].inputs) EXPECT_NE(place.region, Region::kState);
}

}  // namespace
}  // namespace ridge::test
