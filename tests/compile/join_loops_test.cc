// Lists of loops: which loops share one, that the rest of the graph is as it was, and that the
// arena is not larger.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/list_backend.h"
#include "tests/support/many_parameters.h"
#include "tests/support/own_program.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

Value f32_input(Graph& graph, const std::string& name, Shape shape) {
  return input(graph, name, {DType::kF32, std::move(shape)});
}

// The ops of the graph after all passes.
std::string ops_after(Graph graph) {
  ListBackend backend;
  run_pipeline(graph, backend, {.verify_each = true});
  std::string ops;
  for (const auto& node : graph.nodes())
    if (!node->is<Input>() && !node->is<Reshape>() && !node->is<Slice>())
      ops += (ops.empty() ? "" : " ") + std::string(node->op->name());
  return ops;
}

// `make(i)` of inputs of i + 2 elements, each an output of its own.
template <typename Make>
std::string ops_of_outputs(int count, Make make) {
  Graph graph;
  const Value rate = f32_input(graph, "rate", {});
  for (int i = 0; i < count; ++i) {
    const std::string name = std::to_string(i);
    const Value x = f32_input(graph, "x" + name, {i + 2});
    graph.add_output("y" + name, make(i, x, rate));
  }
  return ops_after(std::move(graph));
}

Value scaled(Value x, Value rate) { return exp(x) * broadcast(rate, x.shape()); }

TEST(JoinLoops, LoopsThatSayTheSameAreOneNode) {
  const auto same = [](int, Value x, Value rate) { return scaled(x, rate); };
  EXPECT_EQ(ops_of_outputs(5, same), "fused_each");
  // So few are left alone.
  EXPECT_EQ(ops_of_outputs(3, same), "fused fused fused");
}

TEST(JoinLoops, PlainOpsAndTotalsAreLoopsToo) {
  EXPECT_EQ(ops_of_outputs(4, [](int, Value x, Value) { return cast(x, DType::kBF16); }),
            "fused_each");
  EXPECT_EQ(ops_of_outputs(4, [](int, Value x, Value) { return reduce_sum(x * x); }), "fused_each");
}

TEST(JoinLoops, WhatIsNotTheSameStaysApart) {
  EXPECT_EQ(
      ops_of_outputs(
          4, [](int i, Value x, Value rate) { return scaled(x, rate) + (i % 2 == 0 ? 1.0 : 2.0); }),
      "fused fused fused fused");
  const auto mean = [](int, Value x, Value) { return reduce_mean(x * x); };
  EXPECT_EQ(ops_of_outputs(4, mean), "fused fused fused fused");
}

TEST(JoinLoops, OnlyScalarsAreShared) {
  Graph graph, other;
  for (int i = 0; i < 4; ++i) {
    const std::string name = std::to_string(i);
    const Value x = f32_input(graph, "x" + name, {6, i + 2});
    graph.add_output("y" + name,
                     exp(x) * broadcast(f32_input(graph, "b" + name, {i + 2}), x.shape()));
    // Each has a scalar of its own.
    const Value z = f32_input(other, "x" + name, {i + 2});
    other.add_output("y" + name, scaled(z, f32_input(other, "rate" + name, {})));
  }
  EXPECT_EQ(ops_after(std::move(graph)), "fused fused fused fused");
  EXPECT_EQ(ops_after(std::move(other)), "fused fused fused fused");
}

TEST(JoinLoops, SingleElementsAndRandomNumbersStayApart) {
  Graph graph;
  const Value rng = input(graph, "rng", {DType::kI64, {3}});
  for (int i = 0; i < 4; ++i) {
    const std::string name = std::to_string(i);
    graph.add_output("y" + name, exp(f32_input(graph, "x" + name, {1, 1})) * 2.0);
    graph.add_output("z" + name, dropout(f32_input(graph, "d" + name, {8, i + 2}), rng, 0.5, 8));
  }
  EXPECT_EQ(ops_after(std::move(graph)).find("fused_each"), std::string::npos);
}

TEST(JoinLoops, AListNeverWaitsForItself) {
  // Two chains of four loops: those of a chain wait for each other, and two are too few.
  for (const int chains : {2, 4}) {
    Graph graph;
    for (int chain = 0; chain < chains; ++chain) {
      const std::string name = std::to_string(chain);
      Value x = f32_input(graph, "x" + name, {8, chain + 2});
      for (int i = 0; i < 4; ++i) x = transpose(relu(x * 0.5), {1, 0});
      graph.add_output("y" + name, x);
    }
    std::string each = "fused_each";
    for (int chain = 0; chain < 4; ++chain) each += " transpose";
    const std::string ops = ops_after(std::move(graph));
    if (chains == 2)
      EXPECT_EQ(ops.find("fused_each"), std::string::npos) << ops;
    else
      EXPECT_EQ(ops, each + " " + each + " " + each + " " + each);
  }
}

// Readers of a result come after all of the list, and the operands of the list before it.
TEST(JoinLoops, ReadersWaitForTheWholeList) {
  Graph graph;
  const Value rate = f32_input(graph, "rate", {});
  std::vector<Value> scales;
  for (int i = 0; i < 4; ++i) {
    const Value x = f32_input(graph, "x" + std::to_string(i), {2, i + 2});
    scales.push_back(scaled(transpose(x, {1, 0}), rate));
    graph.add_output("y" + std::to_string(i), transpose(scales.back(), {1, 0}));
  }
  EXPECT_EQ(ops_after(std::move(graph)),
            "transpose transpose transpose transpose fused_each transpose transpose transpose "
            "transpose");
}

TEST(JoinLoops, TheSiteIsWhatTheSitesHaveInCommon) {
  const auto site_of = [](const std::vector<std::string>& scopes) {
    Graph graph;
    for (size_t i = 0; i < scopes.size(); ++i) {
      const Value x = f32_input(graph, fmt::format("x{}", i), {2});
      const SiteScope scope(graph, scopes[i]);
      graph.add_output(fmt::format("y{}", i), exp(x) * 2.0);
    }
    ListBackend backend;
    run_pipeline(graph, backend, {});
    return graph.nodes().back()->site.name;
  };
  EXPECT_EQ(site_of({"top.a", "top.b.c", "top.ab", "top"}), "top:fused_each.0");
  EXPECT_EQ(site_of({"a.bc", "a.b", "a.b.c", "a.b"}), "a:fused_each.0");
  EXPECT_EQ(site_of({"a", "b", "c", "d"}), ":fused_each.0");
}

// Four loops of which each is read, and gone, before the next one is there: a list would keep them
// all. So it is made only where nobody counts bytes.
TEST(JoinLoops, NoListTakesMoreMemory) {
  Graph graph("main");
  const Value x = f32_input(graph, "x", {256, 256});
  for (int i = 0; i < 4; ++i) {
    const Value made = exp(transpose(slice(x, 0, 0, 250 + i), {1, 0})) * 2.0;
    graph.add_output("y" + std::to_string(i), slice(transpose(made, {1, 0}), 0, 0, 1));
  }
  ListBackend backend;
  const PlanOptions plan;
  PipelineOptions options;
  Graph counted = graph.clone();
  options.arena = arena_options({}, backend, plan);
  run_pipeline(counted, backend, options);
  run_pipeline(graph, backend, {});
  EXPECT_EQ(print(counted).find("fused_each"), std::string::npos) << print(counted);
  EXPECT_NE(print(graph).find("fused_each"), std::string::npos) << print(graph);
}

// The kernels that the pass asks about may have to be compiled and timed first; that is not the
// pass's own time.
TEST(JoinLoops, ChoosingKernelsIsBookedApart) {
  Graph graph("main");
  for (int i = 0; i < 4; ++i)
    graph.add_output("y" + std::to_string(i),
                     exp(f32_input(graph, "x" + std::to_string(i), {i + 2})) * 2.0);
  ListBackend backend;
  constexpr int64_t kLong = 3'600'000'000'000;
  int64_t choosing_ns = 0;
  const PlanOptions plan{.choose =
                             [&](const Node&, const std::vector<Choice>&) {
                               choosing_ns += kLong;
                               return size_t{0};
                             },
                         .choosing_ns = &choosing_ns};
  PipelineOptions options;
  options.arena = arena_options({}, backend, plan);
  options.choosing_ns = &choosing_ns;
  double choosing = 0;
  for (const PassReport& report : run_pipeline(graph, backend, options)) {
    choosing += report.choosing_seconds;
    EXPECT_EQ(report.choosing_seconds > 0, report.name == "join_loops");
    EXPECT_EQ(report.seconds < 0, report.name == "join_loops");  // the hours are none
  }
  EXPECT_DOUBLE_EQ(choosing, static_cast<double>(choosing_ns) * 1e-9);
}

// ---- whole programs ----

size_t count(const Graph& graph, std::string_view op) {
  return static_cast<size_t>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
        return node->op->name() == op;
      }));
}

TEST(JoinLoops, AnOptimizerIsAFewNodesInPlace) {
  for (const bool has_copies : {false, true}) {
    SCOPED_TRACE(has_copies);
    ListBackend list;
    const auto cpu = make_backend("cpu");
    OwnProgram joined(many_parameters(has_copies), list, {}),
        apart(many_parameters(has_copies), *cpu, {});
    const Graph& graph = joined.entries()[0];
    // Sums of squares, updates with and without decay.
    EXPECT_EQ(count(graph, "fused_each"), 3u) << print(graph);
    EXPECT_EQ(count(graph, "copy"), 0u) << print(graph);
    EXPECT_LT(joined.plan().entries[0].steps.size(), apart.plan().entries[0].steps.size());
    EXPECT_LE(joined.plan().arena_bytes, apart.plan().arena_bytes + 2048);
    // New values take the place of old ones; copies had no old value that was read.
    for (const PlanStep& step : joined.plan().entries[0].steps)
      if (step.op == "fused_each" && step.outputs[0].region == Region::kState) {
        size_t in_place = 0;
        for (const Place& place : step.outputs)
          in_place += std::find(step.inputs.begin(), step.inputs.end(), place) != step.inputs.end();
        EXPECT_EQ(in_place * (has_copies ? 4 : 3), step.outputs.size() * 3);
      }
    const ManyRun got = run_many(joined, 4, 2), want = run_many(apart, 4, 2);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(bit_difference(got.state, want.state), "");
  }
}

TEST(JoinLoops, TheTextParsesBackAndExpands) {
  ListBackend list;
  const OwnProgram joined(many_parameters(), list, {});
  const Graph& graph = joined.entries()[0];
  const Graph parsed = parse_graph(print(graph), "main");
  EXPECT_EQ(print(parsed), print(graph));
  verify(parsed);
  // A device without lists runs the plain ops.
  Graph lowered = parsed.clone();
  run_pipeline(lowered, *make_backend("cpu"), {});
  verify(lowered);
}

TEST(JoinLoops, ABodyIsCheckedLineByLine) {
  const std::string head = "ridge.graph/1 \"each\"\n";
  const std::string x = "%0 = input() {name=\"0\", shape=[1]} : f32[1] @ \"0\"\n";
  const auto message = [&](const std::string& body, std::vector<Shape> shapes = {{2}}) {
    Graph graph;
    std::vector<Value> inputs;
    for (size_t i = 0; i < shapes.size(); ++i)
      inputs.push_back(f32_input(graph, std::to_string(i), shapes[i]));
    FusedEach op;
    op.body = body;
    return user_error(
        [&] { graph.add(std::make_shared<const FusedEach>(std::move(op)), inputs, Site{"site"}); });
  };
  const auto expect = [&](const std::string& got, const std::string& part) {
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  const std::string good = head + x + "%1 = exp(%0) : f32[1] @ \"exp.0\"\noutput \"0\" = %1\n";
  expect(message(""), "body of a list:1:1: empty");
  expect(message(head + x), "and makes 0");
  expect(message(head + x + "output \"0\" = %0\n"), "must be named '0' and computed");
  expect(message(head + "%0 = input() {name=\"0\", shape=[2]} : f32[2] @ \"0\"\n"),
         "is no input of shape [] or [1]");
  expect(message(head + "%0 = input() {name=\"7\", shape=[1]} : f32[1] @ \"7\"\n"),
         "is an input out of its order");
  expect(message(head + x + "%1 = input() {name=\"1\"} : f32[] @ \"1\"\n"),
         "is a shared input behind one of the tensors");
  expect(message(good, {{2}, {1}}), "tensor 1 has one element");
  expect(message(good, {}), "input");
  EXPECT_EQ(
      message(head + x +
                  "%1 = input() {name=\"1\", shape=[1]} : f32[1] @ \"1\"\n"
                  "%2 = add(%0, %1) : f32[1] @ \"add.0\"\noutput \"0\" = %2\n",
              {{2}, {3}})
              .find("input 1 has another type; got f32[3], expected f32[2]") != std::string::npos,
      true);
}

// Random lists between other nodes: the bits of the loops alone.
TEST(JoinLoops, RandomListsGiveTheBitsOfTheirLoops) {
  ListBackend list;
  const auto cpu = make_backend("cpu");
  size_t lists = 0;
  for (int seed = 0; seed < cases(60); ++seed) {
    SCOPED_TRACE(seed);
    CaseBuilder b(seed % 3 == 2 ? DType::kBF16 : DType::kF32, static_cast<uint64_t>(seed));
    Random random(static_cast<uint64_t>(seed) + 7);
    const Value scalars[] = {b.input({}), b.input({})};
    std::vector<Value> values, outputs;
    for (int i = 0; i < 8; ++i)
      values.push_back(b.input({random.integer(1, 5), random.integer(1, 40)}));
    for (int round = 0; round < 8; ++round) {
      const int64_t kind = random.integer(0, 5), left_out = random.integer(0, 7);
      for (int64_t i = 0; i < 8; ++i) {
        if (i == left_out) continue;
        Value& x = values[static_cast<size_t>(i)];
        const Value scalar = broadcast(scalars[random.integer(0, 6) / 6], x.shape());
        switch (kind) {
          case 0:
            x = transpose(x, {1, 0});
            break;
          case 1:
            x = exp(x) * scalar;
            break;
          case 2:
            x = relu(x + scalar) - x;
            break;
          case 3:
            outputs.push_back(reduce_sum(cast(x, DType::kF32)));
            break;
          case 4:
            outputs.push_back(neg(tanh(x)));
            break;
          default:
            x = cast(cast(x, DType::kF16), b.dtype());
        }
      }
    }
    outputs.insert(outputs.end(), values.begin(), values.end());
    b.finish(outputs);
    Graph joined = b.graph().clone();
    run_pipeline(joined, list, {.verify_each = true});
    lists += count(joined, "fused_each");
    Graph apart = b.graph().clone();
    run_pipeline(apart, *cpu, {});
    EXPECT_EQ(
        bit_difference(evaluate(joined, list, b.tensors()), evaluate(apart, *cpu, b.tensors())),
        "");
  }
  EXPECT_GE(lists * 8, static_cast<size_t>(cases(60)));
}

}  // namespace
}  // namespace ridge::test
