// Fusion: which ops share a loop, and that loops give the bits of the ops one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"
#include "tests/support/random_graph.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

std::string ops_of(const Graph& graph) {
  std::string ops;
  for (const auto& node : graph.nodes())
    if (!node->is<Input>()) ops += (ops.empty() ? "" : " ") + std::string(node->op->name());
  return ops;
}

Value f32_input(Graph& graph, const char* name, Shape shape) {
  return input(graph, name, {DType::kF32, std::move(shape)});
}

std::string optimized_ops(Graph graph) {
  run_pipeline(graph, *make_backend("cpu"), {.verify_each = true});
  return ops_of(graph);
}

TEST(Fuse, AChainWithConstantsAndABroadcastIsOneLoop) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5}), bias = f32_input(graph, "b", {5});
  graph.add_output("y", relu(exp(x) * 0.5 + bias));
  EXPECT_EQ(optimized_ops(graph.clone()), "fused");
}

TEST(Fuse, AValueThatAnotherOpReadsIsAResultToo) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5});
  const Value e = exp(x);
  graph.add_output("largest", argmax(e, 0));
  graph.add_output("y", neg(e) + x);
  run_pipeline(graph, *make_backend("cpu"), {});
  EXPECT_EQ(ops_of(graph), "fused argmax");
  EXPECT_EQ(graph.nodes()[1]->outputs.size(), 2u);
}

TEST(Fuse, ALoopNeverWaitsForItself) {
  // y needs the sum of all of e, so e and y cannot share a loop.
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5});
  const Value e = exp(x);
  graph.add_output("y", neg(e) * broadcast(reduce_sum(e), {6, 5}));
  EXPECT_EQ(optimized_ops(graph.clone()), "fused fused");
}

TEST(Fuse, ReshapesAreWithinALoop) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5});
  graph.add_output("y", neg(reshape(neg(exp(x)), {30})) * 2.0);
  EXPECT_EQ(optimized_ops(graph.clone()), "fused");
}

TEST(Fuse, DropoutIsWithinALoopButNotInOneOverRows) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5}), bias = f32_input(graph, "b", {5});
  const Value rng = input(graph, "rng", {DType::kI64, {3}});
  graph.add_output("y", x + dropout(gelu(x + bias), rng, 0.1, 6));
  EXPECT_EQ(optimized_ops(graph.clone()), "fused");
  graph.add_output("sums", reduce_sum(exp(dropout(x, rng, 0.1, 6)), {1}));
  run_pipeline(graph, *make_backend("cpu"), {.verify_each = true});
  for (const auto& node : graph.nodes())
    if (node->is<Fused>() && node->op_as<Fused>().rows > 1) {
      EXPECT_THAT(node->op_as<Fused>().body, testing::Not(testing::HasSubstr("dropout(")));
    }
}

TEST(Fuse, LoopsOfDifferentSizesStayApart) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5});
  graph.add_output("y", neg(slice(neg(exp(x)), 0, 1, 4)) * 2.0);
  EXPECT_EQ(optimized_ops(graph.clone()), "fused slice fused");
}

TEST(Fuse, TheReferenceRunsPlainOps) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5});
  graph.add_output("y", exp(x) * x);
  run_pipeline(graph, *make_backend("ref"), {});
  EXPECT_EQ(ops_of(graph), "exp mul");
}

TEST(Fuse, SitesStayInTheBody) {
  Graph graph;
  const Value x = f32_input(graph, "x", {6, 5});
  const SiteScope scope(graph, "layer.3");
  graph.add_output("y", neg(exp(x)));
  run_pipeline(graph, *make_backend("cpu"), {});
  EXPECT_THAT(graph.nodes().back()->op_as<Fused>().body, testing::HasSubstr("layer.3:exp.0"));
  EXPECT_EQ(graph.nodes().back()->site.name, "layer.3:neg.0");
}

// Random bodies over domains that are no multiple of a block, with every kind of broadcast.
TEST(Fuse, RandomLoopsGiveTheBitsOfTheirOps) {
  const auto cpu = make_backend("cpu");
  int fused_nodes = 0;
  for (int seed = 0; seed < cases(200); ++seed) {
    const DType dtype = seed % 4 == 3 ? DType::kBF16 : seed % 4 == 2 ? DType::kF64 : DType::kF32;
    CaseBuilder b(dtype, static_cast<uint64_t>(seed));
    Random random(static_cast<uint64_t>(seed) + 99);
    const Shape domain{random.integer(1, 7), random.integer(1, 40), random.integer(1, 90)};
    std::vector<Value> values{b.input(domain), b.input(domain)};
    for (int mask = 0; mask < 8; mask += static_cast<int>(random.integer(1, 3))) {
      Shape small = domain;
      for (int axis = 0; axis < 3; ++axis)
        if (mask >> axis & 1) small[static_cast<size_t>(axis)] = 1;
      values.push_back(broadcast(b.input(small), domain));
    }
    values.push_back(broadcast(b.input({domain[2]}), domain));
    const Value rng = b.given({DType::kI64, {3}}, {7.0 * seed, 3, static_cast<double>(seed % 5)});
    const auto any = [&] {
      return values[static_cast<size_t>(
          random.integer(0, static_cast<int64_t>(values.size()) - 1))];
    };
    std::vector<Value> outputs;
    for (int i = 0; i < 14; ++i) {
      switch (random.integer(0, 9)) {
        case 0:
          values.push_back(tanh(any()));
          break;
        case 1:
          values.push_back(any() * any());
          break;
        case 2:
          values.push_back(any() + any() * 0.25);
          break;
        case 3:
          values.push_back(where(gt(any(), any()), any(), any()));
          break;
        case 4:
          values.push_back(maximum(any(), any()));
          break;
        case 5:
          values.push_back(sigmoid(any()));
          break;
        case 6:
          values.push_back(cast(cast(any(), DType::kI32), dtype));
          break;
        case 7:
          values.push_back(gelu(any()));
          break;
        case 8:
          values.push_back(dropout(any(), rng, 0.3, domain[0]));
          break;
        default:
          values.push_back(any() - any());
      }
      if (random.chance(0.4)) outputs.push_back(values.back());
    }
    outputs.push_back(tanh(values.back()));
    b.finish(outputs);
    Graph graph = b.graph().clone();
    run_pipeline(graph, *cpu, {});
    for (const auto& node : graph.nodes()) fused_nodes += node->is<Fused>();
    for (cpu::Isa isa : cpu::kAllIsas) {
      if (!cpu::has_isa(isa)) continue;
      cpu::set_isa(isa);
      const NamedTensors wanted = evaluate(b.graph(), *cpu, b.tensors());
      ASSERT_EQ(bit_difference(wanted, evaluate(graph, *cpu, b.tensors())), "")
          << "seed " << seed << "\n"
          << print(graph);
      // The other way to run the same node.
      const auto last = [](const Node&, const std::vector<Choice>& choices) {
        return choices.size() - 1;
      };
      ASSERT_EQ(bit_difference(wanted, evaluate(graph, *cpu, b.tensors(), last)), "") << seed;
    }
    cpu::set_isa(cpu::choose_isa("auto"));
  }
  EXPECT_GT(fused_nodes, cases(200));
}

TEST(Fuse, BadBodiesAreRefused) {
  const auto message = [](const std::string& body) {
    Graph graph;
    const Value x = input(graph, "x", {DType::kF32, {4}});
    auto op = std::make_shared<Fused>();
    op->body = body;
    return user_error([&] { graph.add(op, {x}); });
  };
  const auto body = [](const std::function<void(Graph&, Value)>& build) {
    Graph graph("fused");
    build(graph, input(graph, "0", {DType::kF32, {4}}));
    return print(graph);
  };
  EXPECT_THAT(message("nonsense"), testing::HasSubstr("fused body"));
  EXPECT_THAT(message(body([](Graph&, Value) {})), testing::HasSubstr("no outputs"));
  EXPECT_THAT(message(body([](Graph& g, Value x) { g.add_output("0", x); })),
              testing::HasSubstr("not computed"));
  EXPECT_THAT(message(body([](Graph& g, Value x) { g.add_output("1", exp(x)); })),
              testing::HasSubstr("must be named '0'"));
  EXPECT_THAT(message(body([](Graph& g, Value x) { g.add_output("0", slice(x, 0, 0, 2)); })),
              testing::HasSubstr("is not elementwise"));
  EXPECT_THAT(
      message(body([](Graph& g, Value x) { g.add_output("0", exp(x) + input(g, "1", x.type())); })),
      testing::HasSubstr("got 1, the body has 2"));
}

}  // namespace
}  // namespace ridge::test
