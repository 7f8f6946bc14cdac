// Recompute: smaller limits give smaller arenas, the bits stay, and nothing undoes it.
#include "ridge/compile/passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/compile/pass.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "ridge/nn/training.h"
#include "ridge/run/backends.h"
#include "ridge/run/program.h"
#include "tests/support/own_program.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

bool in_short() { return cases(2) < 2; }

nn::Training training_of(const std::string& kind) {
  nn::ModelOptions options;
  options.kind = parse_name<nn::ModelKind>(kind).value();
  options.mlp = {.hidden = {64, 48}, .outputs = 10, .dropout = 0.2};
  options.cnn = {.widths = {4, 8}, .blocks = 1, .outputs = 10, .dropout = 0.1};
  options.gpt = {.vocab = 64,
                 .context = 32,
                 .layers = in_short() ? 2 : 3,
                 .heads = 2,
                 .width = 16,
                 .dropout = 0.1};
  const bool text = kind == "gpt";
  const nn::SampleTypes sample = text
                                     ? nn::SampleTypes{{DType::kI64, {32}}, {DType::kI64, {32}}}
                                     : nn::SampleTypes{{DType::kF32, {8, 8, 2}}, {DType::kI64, {}}};
  return nn::Training(nn::make_model(options, sample), {});
}

// Some numbers in every input, and after two runs of the entry all of its outputs and the state.
std::vector<double> results_of(const nn::Training& training,
                               int64_t limit,
                               int64_t* bytes,
                               int64_t loss_chunks) {
  const auto backend = make_backend("cpu");
  ProgramOptions options;
  options.memory_limit = limit;
  options.passes.loss_chunks = loss_chunks;
  options.passes.verify_each = true;
  OwnProgram program(training.program({.step = {24}}), *backend, options);
  *bytes = program.plan().total_bytes();
  for (const auto& [name, tensor] : training.initial_state(false, 3))
    program.state().write(name, tensor);
  for (int run = 0; run < 2; ++run) {
    for (const PlanSlot& slot : program.plan().entries[0].inputs) {
      Tensor tensor(slot.type);
      for (int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i,
                   is_float(slot.type.dtype) ? 0.01 * static_cast<double>(i % 37)
                                             : static_cast<double>(i % 7));
      program.write(program.input(0, slot.name), tensor.data());
    }
    program.run(0);
    program.synchronize();
  }
  std::vector<double> values;
  for (const PlanSlot& slot : program.plan().state) {
    const Tensor tensor = program.state().read(slot.name);
    for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.at(i));
  }
  return values;
}

class RecomputeOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models,
                         RecomputeOf,
                         ::testing::Values("mlp", "cnn", "gpt", "gpt_in_parts"),
                         [](const auto& model) { return model.param; });

TEST_P(RecomputeOf, PeaksFallWithTheLimitAndBitsStay) {
  const bool in_parts = GetParam() == "gpt_in_parts";
  const nn::Training training = training_of(in_parts ? "gpt" : GetParam());
  const int64_t chunks = in_parts ? 3 : 1;
  int64_t whole = 0;
  const std::vector<double> expected = results_of(training, 0, &whole, chunks);
  const int64_t state = state_bytes(training.state(false));
  int64_t last = whole, kept = 0, least = whole;
  // In a short form fewer steps, and as far down.
  const int step = in_short() ? 3 : 1;
  for (int i = 0; i < 12; i += step) {
    const int64_t limit = state + (whole - state) * (20 - i) / 20;
    int64_t bytes = 0;
    EXPECT_EQ(results_of(training, limit, &bytes, chunks), expected) << "limit " << limit;
    EXPECT_LE(bytes, last) << "limit " << limit;
    if (bytes <= limit) ++kept;
    last = bytes;
    least = std::min(least, bytes);
  }
  EXPECT_GE(kept, step > 1 ? 1 : 2)
      << "of " << whole << " with " << state << " of state, at least " << least;
  EXPECT_LT(least, whole);
}

// x, exp(x) and their product at the end, with a matmul that needs much in between.
Graph wide_graph() {
  Graph graph("main");
  const TensorType type{DType::kF32, {128, 128}};
  const Value x = input(graph, "x", type), w = input(graph, "w", type);
  const Value early = exp(x);
  Value deep = early;
  for (int i = 0; i < 3; ++i) deep = tanh(matmul(deep, w));
  graph.add_output("y", reduce_sum(deep * early * x));
  return graph;
}

bool has_op(const Graph& graph, std::string_view name) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == name;
  });
}

TEST(Recompute, ClonesKeepTheirSiteAndAreNotMerged) {
  Graph graph = wide_graph();
  const auto backend = make_backend("cpu");
  const std::vector<StateEntry> state;
  const PlanOptions plan;
  PipelineOptions options{.arena = arena_options(state, *backend, plan)};
  PassContext context{.backend = *backend, .options = options};
  options.arena_limit = place_arena(graph, options.arena).layout.peak - 1;
  ASSERT_TRUE(recompute(graph, context));
  verify(graph);
  EXPECT_LE(place_arena(graph, options.arena).layout.peak, options.arena_limit);
  const std::string before = print(graph);
  EXPECT_THAT(before, testing::HasSubstr("barrier"));
  const auto count = [&](std::string_view site) {
    size_t found = 0;
    for (const auto& node : graph.nodes()) found += node->site.name == site ? 1 : 0;
    return found;
  };
  EXPECT_EQ(count(":exp.0"), 2u);
  merge_common(graph, context);
  simplify(graph, context);
  remove_dead(graph, context);
  EXPECT_EQ(print(graph), before);
  EXPECT_EQ(print(parse_graph(before, "main")), before);
}

TEST(Recompute, WithoutALimitNothingChanges) {
  Graph graph = wide_graph();
  const auto backend = make_backend("cpu");
  const PipelineOptions options;
  PassContext context{.backend = *backend, .options = options};
  EXPECT_FALSE(recompute(graph, context));
  EXPECT_FALSE(has_op(graph, "barrier"));
}

TEST(Recompute, MakesTheSmallestArenaWhereTheLimitIsOutOfReach) {
  Graph graph = wide_graph();
  const auto backend = make_backend("cpu");
  const std::vector<StateEntry> state;
  const PlanOptions plan;
  PipelineOptions options{.arena = arena_options(state, *backend, plan)};
  PassContext context{.backend = *backend, .options = options};
  const int64_t before = place_arena(graph, options.arena).layout.peak;
  options.arena_limit = 1;
  EXPECT_TRUE(recompute(graph, context));
  EXPECT_LT(place_arena(graph, options.arena).layout.peak, before);
}

}  // namespace
}  // namespace ridge::test
