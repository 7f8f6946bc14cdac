// Passes: what each does to small graphs, and that none changes a result.
#include "ridge/compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/compile/rules/rule.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/ops/tf32.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"
#include "tests/support/random_graph.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using Build = std::function<Value(Value)>;

Graph graph_of(const Build& build, TensorType type = {DType::kF32, {2, 3}}) {
  Graph graph;
  graph.add_output("y", build(input(graph, "x", type)));
  return graph;
}

// The ops of the graph after the pipeline, in order, without inputs.
std::string ops_after(const Build& build, PipelineOptions options = {}) {
  options.off.push_back("fuse_loops");
  Graph graph = graph_of(build);
  run_pipeline(graph, *make_backend("cpu"), options);
  std::string ops;
  for (const auto& node : graph.nodes())
    if (!node->is<Input>()) ops += (ops.empty() ? "" : " ") + std::string(node->op->name());
  return ops;
}

TEST(Pipeline, SeveralSpellingsBecomeOne) {
  EXPECT_EQ(ops_after([](Value x) { return x; }), "");
  EXPECT_EQ(ops_after([](Value x) { return x * 1.0; }), "");
  EXPECT_EQ(ops_after([](Value x) { return neg(neg(x)); }), "");
  EXPECT_EQ(ops_after([](Value x) { return x + neg(exp(x)); }), "exp sub");
  EXPECT_EQ(ops_after([](Value x) { return x - exp(x); }), "exp sub");
  EXPECT_EQ(ops_after([](Value x) { return x - neg(exp(x)); }), "exp add");
  EXPECT_EQ(ops_after([](Value x) { return x * -1.0; }), "neg");
  EXPECT_EQ(ops_after([](Value x) { return reshape(reshape(x, {6}), {3, 2}); }), "reshape");
  EXPECT_EQ(ops_after([](Value x) { return transpose(transpose(x, {1, 0}), {1, 0}); }), "");
  EXPECT_EQ(ops_after([](Value x) { return where(gt(x, exp(x)), x, x); }), "");
  const auto equal_constants = [](Value x) {
    const Value row = reduce_max(x, {1});
    const Value two = where(gt(row, exp(row)), constant_like(row, 2.0), constant_like(row, 2.0));
    return x * broadcast(reshape(two, {2, 1}), {2, 3});
  };
  EXPECT_EQ(ops_after(equal_constants), "constant mul");
  EXPECT_EQ(ops_after([](Value x) { return exp(x) + exp(x); }), "exp add");
  EXPECT_EQ(ops_after([](Value x) { return cast(cast(x, DType::kF64), DType::kF32); }), "");
  EXPECT_EQ(ops_after([](Value x) { return matmul(x, transpose_last(x)); }), "matmul");
  EXPECT_EQ(ops_after([](Value x) { return x * (constant_like(x, 2.0) + 3.0); }), "constant mul");
}

TEST(Pipeline, WhatIsNotEqualStays) {
  // -0 + 0 is +0; 1/3 is not exact; a cast to fewer bits rounds.
  EXPECT_EQ(ops_after([](Value x) { return x + 0.0; }), "constant add");
  EXPECT_EQ(ops_after([](Value x) { return x / 3.0; }), "constant div");
  EXPECT_EQ(ops_after([](Value x) { return cast(cast(x, DType::kBF16), DType::kF32); }),
            "cast cast");
  const auto product = [](Value x) {
    const Value right = neg(exp(x + x));  // compilers differ in which operand they evaluate first
    return exp(x) * right;
  };
  EXPECT_EQ(ops_after(product), "add exp neg exp mul");
  EXPECT_EQ(ops_after([](Value x) { return x + 0.0; }, {.highest = SemanticClass::kReassociation}),
            "");
}

TEST(Pipeline, AFoldedSplatKeepsItsSite) {
  Graph graph = graph_of([](Value x) { return x * exp(constant_like(x, 2.0)); });
  run_pipeline(graph, *make_backend("cpu"), {.off = {"fuse_loops"}});
  EXPECT_THAT(print(graph), testing::HasSubstr("@ \":exp.0\""));
}

TEST(Pipeline, CastsGoAroundContractionsOnceAValue) {
  const auto twice = [](Value x) {
    const Value pixels = reshape(x, {1, 2, 3, 1}), filter = reshape(x, {2, 1, 1, 3});
    return conv2d(pixels, filter) + conv2d(pixels, filter);
  };
  const auto of_pixels = [](Value x) {
    return conv2d(reshape(x, {1, 2, 3, 1}), reshape(x, {1, 1, 1, 6}));
  };
  const auto depthwise = [](Value x) {
    return conv2d(reshape(x, {1, 2, 1, 3}), reshape(x, {2, 1, 1, 3}), {}, /*groups=*/3);
  };
  for (const DType precision : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(ops_after(of_pixels, {.precision = precision}), "reshape reshape matmul reshape");
    EXPECT_EQ(ops_after(depthwise, {.precision = precision}), "reshape reshape conv2d");
    EXPECT_EQ(ops_after(twice, {.precision = precision}),
              "reshape reshape cast cast conv2d cast add");
    EXPECT_EQ(ops_after(twice, {.precision = precision, .pins = {":conv2d"}}),
              "reshape reshape conv2d add");
  }
}

TEST(Pipeline, MatrixProductsRoundTheirOperandsThemselves) {
  const auto product = [](Value x) { return exp(matmul(x, x, false, true)); };
  for (const DType precision : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(ops_after(product, {.precision = precision}), "matmul exp");
    for (const bool pinned : {false, true}) {
      Graph graph = graph_of(product);
      PipelineOptions options{.precision = precision};
      if (pinned) options.pins = {":matmul"};
      run_pipeline(graph, *make_backend("cpu"), options);
      const std::string field = fmt::format("round_to={}", name_of(precision));
      EXPECT_EQ(print(graph).find(field) == std::string::npos, pinned);
    }
  }
}

TEST(Pipeline, ProductsMayBeMadeInTf32) {
  const auto both = [](Value x) {
    const Value pixels = reshape(x, {1, 2, 3, 1}), filter = reshape(x, {1, 1, 1, 6});
    const Value y = reduce_sum(conv2d(pixels, filter), {0, 1, 2, 3});
    return y + reduce_sum(matmul(x, x, false, true), {0, 1});
  };
  const auto marked = [&](std::vector<std::string> pins) {
    Graph graph = graph_of(both);
    run_pipeline(graph, *make_backend("cpu"), {.tf32 = true, .pins = std::move(pins)});
    std::string found;
    for (const auto& node : graph.nodes())
      if (is_in_tf32(*node->op)) found += fmt::format("{} ", node->op->name());
    EXPECT_EQ(print(parse_graph(print(graph))), print(graph));
    return found;
  };
  EXPECT_EQ(marked({}), "conv2d matmul ");
  EXPECT_EQ(marked({":conv2d"}), "matmul ");
  EXPECT_EQ(marked({":"}), "");
}

TEST(Pipeline, PassesSwitchOffByName) {
  const auto twice = [](Value x) { return exp(x) + exp(x); };
  EXPECT_EQ(ops_after(twice, {.off = {"merge_common"}}), "exp exp add");
  EXPECT_EQ(ops_after([](Value x) { return neg(neg(x)); }, {.off = {"all"}}), "neg neg");
  Graph graph = graph_of(twice);
  try {
    run_pipeline(graph, *make_backend("cpu"), {.off = {"merge_comon"}});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'merge_common'"));
  }
}

TEST(Pipeline, ReportsSayWhatEachPassDid) {
  Graph graph = graph_of([](Value x) { return exp(x) + exp(x); });
  std::vector<std::string> dumped;
  const auto reports = run_pipeline(
      graph,
      *make_backend("cpu"),
      {.off = {"fuse_loops"},
       .dump = [&](std::string_view name, const Graph&) { dumped.emplace_back(name); }});
  EXPECT_EQ(dumped, std::vector<std::string>{"merge_common"});
  for (const PassReport& report : reports) {
    EXPECT_EQ(report.changed, report.name == "merge_common") << report.name;
    if (report.changed) {
      EXPECT_LT(report.nodes_after, report.nodes_before);
    }
  }
}

// Every rule has a case here where it matches; a rule without one fails the walk below.
TEST(Rules, EachHasAnIdentityAndAUniqueName) {
  std::set<std::string_view> names;
  for (const Rule& rule : all_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.identity.empty()) << rule.name;
    if (!rule.op.empty()) {
      EXPECT_NO_THROW(registry().create(rule.op)) << rule.name;
    }
  }
}

// Special values in every operand, so that a rule that is wrong for -0 or infinity shows.
NamedTensors special_values(const Graph& graph) {
  const double values[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 1e-42, -3e38, 0.1, 7, 2};
  NamedTensors tensors;
  int shift = 0;
  for (const Node* node : graph.inputs()) {
    Tensor tensor(node->outputs[0]);
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, values[static_cast<size_t>(i * 5 + shift) % std::size(values)]);
    tensors.emplace(node->op_as<Input>().input_name, std::move(tensor));
    ++shift;
  }
  return tensors;
}

TEST(Rules, BitIdenticalOnesKeepBitsOfSpecialValues) {
  const std::pair<const char*, Build> kCases[] = {
      {"mul_one", [](Value x) { return constant_like(x, 1.0) * x; }},
      {"div_one", [](Value x) { return x / 1.0; }},
      {"sub_zero", [](Value x) { return x - 0.0; }},
      {"add_negative_zero", [](Value x) { return x + -0.0; }},
      {"add_integer_zero", [](Value x) { return cast(cast(x, DType::kI32) + 0.0, DType::kF32); }},
      {"double_negation", [](Value x) { return neg(neg(x)); }},
      {"add_negation", [](Value x) { return neg(x) + exp(x); }},
      {"sub_negation", [](Value x) { return x - neg(exp(x)); }},
      {"mul_minus_one", [](Value x) { return x * -1.0; }},
      {"div_power_of_two", [](Value x) { return x / 8.0; }},
      {"where_same", [](Value x) { return where(gt(x, exp(x)), x, x); }},
      {"where_same",
       [](Value x) { return where(gt(x, exp(x)), constant_like(x, 2), constant_like(x, 2)); }},
      {"where_constant",
       [](Value x) {
         const Value yes = constant(x.graph(), {DType::kBool, x.shape()}, 1.0);
         return where(yes, x, exp(x));
       }},
      {"double_not",
       [](Value x) { return cast(logical_not(logical_not(gt(x, exp(x)))), DType::kF32); }},
      {"cast_to_same",
       [](Value x) {
         Cast op;
         op.to = DType::kF32;
         return add_node(std::move(op), {x});
       }},
      {"cast_and_back", [](Value x) { return cast(cast(x, DType::kF64), DType::kF32); }},
      {"cast_and_back_reshaped",
       [](Value x) {
         const Value low = cast(x, DType::kBF16);
         return cast(cast(reshape(cast(low, DType::kF32), {12}), DType::kBF16), DType::kF32);
       }},
      {"argmax_of_cast",
       [](Value x) {
         return cast(argmax(reshape(cast(cast(x, DType::kBF16), DType::kF32), {2, 6}), 1),
                     DType::kF32);
       }},
      {"pick_of_cast",
       [](Value x) {
         const Value wide = cast(cast(x, DType::kF16), DType::kF32);
         return pick(reshape(wide, {6, 2}), constant(x.graph(), {DType::kI64, {6}}, 1.0));
       }},
      {"same_shape",
       [](Value x) {
         Reshape op;
         op.shape = x.shape();
         return add_node(std::move(op), {x});
       }},
      {"double_reshape", [](Value x) { return reshape(reshape(x, {12}), {4, 3}); }},
      {"identity_transpose",
       [](Value x) {
         Transpose op;
         op.perm = {0, 1};
         return add_node(std::move(op), {x});
       }},
      {"double_transpose", [](Value x) { return transpose(transpose(x, {1, 0}), {1, 0}); }},
      {"transpose_is_reshape",
       [](Value x) { return transpose(reshape(x, {1, 3, 1, 4}), {1, 0, 3, 2}); }},
      {"double_broadcast",
       [](Value x) { return broadcast(broadcast(x, {2, 3, 4}), {5, 2, 3, 4}); }},
      {"trivial_max", [](Value x) { return reduce_max(reshape(x, {3, 1, 4}), {1}); }},
      {"transpose_into_matmul", [](Value x) { return matmul(transpose_last(x), x); }},
  };
  const auto cpu = make_backend("cpu");
  std::set<std::string> covered;
  for (const auto& [name, build] : kCases) {
    Graph graph = graph_of(build, {DType::kF32, {3, 4}});
    const NamedTensors inputs = special_values(graph);
    const NamedTensors before = evaluate(graph, *cpu, inputs);
    const size_t nodes = graph.nodes().size();
    const std::string text = print(graph);
    const PipelineOptions options;
    PassContext context{*cpu, options};
    EXPECT_TRUE(simplify(graph, context)) << name;
    EXPECT_NE(print(graph), text) << name;
    EXPECT_LE(graph.nodes().size(), nodes) << name;
    EXPECT_EQ(bit_difference(before, evaluate(graph, *cpu, inputs)), "") << name;
    covered.insert(name);
  }
  for (const Rule& rule : all_rules())
    if (rule.semantic_class == SemanticClass::kBitIdentical) {
      EXPECT_TRUE(covered.contains(std::string(rule.name))) << "no case for rule " << rule.name;
    }
}

TEST(Pipeline, RandomGraphsKeepTheirBits) {
  const auto cpu = make_backend("cpu");
  int changed = 0;
  for (int seed = 0; seed < cases(150); ++seed) {
    const DType dtype = seed % 3 == 0 ? DType::kF64 : seed % 3 == 1 ? DType::kF32 : DType::kBF16;
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed), {.dtype = dtype});
    Graph plain = b.graph().clone(), graph = b.graph().clone();
    run_pipeline(plain, *cpu, {.off = {"all"}});
    const auto reports = run_pipeline(graph, *cpu, {.verify_each = true});
    for (const PassReport& report : reports) changed += report.changed;
    EXPECT_LE(graph.nodes().size(), plain.nodes().size());
    const NamedTensors wanted = evaluate(plain, *cpu, b.tensors());
    ASSERT_EQ(bit_difference(wanted, evaluate(graph, *cpu, b.tensors())), "") << "seed " << seed;
    // Optimising an optimised graph changes nothing.
    graph = b.graph().clone();
    run_pipeline(graph, *cpu, {.off = {"fuse_loops"}});
    const std::string text = print(graph);
    run_pipeline(graph, *cpu, {.off = {"fuse_loops"}});
    ASSERT_EQ(print(graph), text) << "seed " << seed;
  }
  EXPECT_GT(changed, 0);
}

}  // namespace
}  // namespace ridge::test
