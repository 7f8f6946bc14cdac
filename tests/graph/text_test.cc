// Bad graph texts: one clear error each, with place and site.
#include "ridge/graph/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/verify.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

constexpr std::string_view kGood = R"(ridge.graph/1 "mlp"
dim "B" = 64
# the weights
%0 = input() {name="x", shape=[64,784], batch=0} : f32[64,784] @ "x"
%1 = input() {name="w", shape=[784,10]} : f32[784,10] @ "w"
%2 = matmul(%0, %1) : f32[64,10] @ "fc:matmul.0"
%3 = constant() {shape=[784,10], values=[0.5]} : f32[784,10] @ "half"
%4 = mul(%1, %3) : f32[784,10] @ "decay:mul.0"
output "y" = %2
output "w.new" = %4 updates "w"
)";

// The message of the error that parsing `text` gives.
std::string error_of(std::string_view text) {
  return test::user_error([&] { parse_graph(text, "test"); });
}

// kGood with `from` replaced by `to`.
std::string altered(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(GraphText, ParsesWhatItSays) {
  const Graph graph = parse_graph(kGood);
  verify(graph);
  EXPECT_EQ(graph.name(), "mlp");
  EXPECT_EQ(graph.binding(), (Binding{{"B", 64}}));
  ASSERT_EQ(graph.nodes().size(), 5u);
  const Node& product = *graph.nodes()[2];
  EXPECT_EQ(product.site.name, "fc:matmul.0");
  EXPECT_EQ(product.op_as<MatMul>().transpose_a, false);
  EXPECT_EQ(product.outputs[0], (TensorType{DType::kF32, {64, 10}}));
  EXPECT_EQ(product.inputs[0].node->op_as<Input>().batch, 0);
  ASSERT_EQ(graph.outputs().size(), 2u);
  EXPECT_EQ(graph.outputs()[1].updates, "w");
}

TEST(GraphText, EscapedNamesSurvive) {
  Graph graph("a \"quoted\"\nname\\");
  const Value x = input(graph, "tab\tand \x01", {DType::kF64, {2}});
  graph.add_output("out \"0\"", x * 0.1);
  const std::string text = print(graph);
  const Graph parsed = parse_graph(text);
  EXPECT_EQ(parsed.name(), graph.name());
  EXPECT_NE(parsed.find_input("tab\tand \x01"), nullptr);
  EXPECT_EQ(parsed.outputs()[0].name, "out \"0\"");
  EXPECT_EQ(print(parsed), text);
}

TEST(GraphText, NumbersSurviveExactly) {
  Graph graph;
  const double values[] = {0.1, 1e-310, 1e300, -0.0, 1.0 / 3.0};
  graph.add_output("c", constant(graph, {DType::kF64, {5}}, {values, values + 5}));
  const double inf = std::numeric_limits<double>::infinity();
  graph.add_output("i", constant(graph, {DType::kF32, {3}}, {inf, -inf, std::nan("")}));
  const Graph parsed = parse_graph(print(graph));
  const auto& constant = parsed.nodes()[0]->op_as<Constant>();
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(std::bit_cast<uint64_t>(constant.values[i]), std::bit_cast<uint64_t>(values[i]));
  const auto& special = parsed.nodes()[1]->op_as<Constant>();
  EXPECT_EQ(special.values[0], inf);
  EXPECT_EQ(special.values[1], -inf);
  EXPECT_TRUE(std::isnan(special.values[2]));
}

struct BadText {
  std::string_view name, from, to, message;
};

class BadGraph : public ::testing::TestWithParam<BadText> {};

TEST_P(BadGraph, GivesOneClearError) {
  EXPECT_EQ(error_of(altered(GetParam().from, GetParam().to)), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BadGraph,
    ::testing::Values(
        BadText{"Header",
                "ridge.graph/1",
                "ridge.graph/9",
                "test:1:1: got 'ridge.graph/9 \"mlp\"', expected 'ridge.graph/1'"},
        BadText{"UnknownOp",
                "matmul(",
                "matmull(",
                "test:6:1: unknown op 'matmull', at site 'fc:matmul.0'; did you mean 'matmul' or "
                "'matmul_i8'?"},
        BadText{"UnknownField",
                "batch=0",
                "bach=0",
                "test:4:1: [input] unknown field 'bach', at site 'x'; did you mean 'batch'?"},
        BadText{"FieldType",
                "batch=0",
                "batch=zero",
                "test:4:1: [input] field 'batch': got zero, expected an integer, at site 'x'"},
        BadText{"Shape",
                "%2 = matmul(%0, %1)",
                "%2 = matmul(%1, %0)",
                "test:6:1: [matmul] inner dimensions differ; got f32[784,10] and f32[64,784], at "
                "site 'fc:matmul.0'"},
        BadText{"DType",
                "{name=\"w\", shape=[784,10]} : f32",
                "{name=\"w\", dtype=f64, shape=[784,10]} : f64",
                "test:6:1: [matmul] dtypes differ; got f32[64,784] and f64[784,10], at site "
                "'fc:matmul.0'"},
        BadText{"StatedType",
                ": f32[64,10] @",
                ": f32[64,11] @",
                "test:6:1: the type does not fit; got f32[64,11], expected f32[64,10], at site "
                "'fc:matmul.0'"},
        BadText{"Cycle",
                "%1 = input() {name=\"w\", shape=[784,10]}",
                "%1 = neg(%4)",
                "test:5:10: a cycle: %1 -> %4 -> %1, at site 'w'"},
        BadText{"SelfReference",
                "matmul(%0, %1)",
                "matmul(%0, %2)",
                "test:6:17: a cycle: %2 -> %2, at site 'fc:matmul.0'"},
        BadText{"UseBeforeDefinition",
                "matmul(%0, %1)",
                "matmul(%0, %3)",
                "test:6:17: %3 is used before the line that defines it, at site 'fc:matmul.0'"},
        BadText{"Undefined",
                "matmul(%0, %1)",
                "matmul(%0, %9)",
                "test:6:17: %9 is not defined, at site 'fc:matmul.0'"},
        BadText{"NoSuchResult",
                "matmul(%0, %1)",
                "matmul(%0, %1.1)",
                "test:6:17: %1 has 1 results, at site 'fc:matmul.0'"},
        BadText{"DefinedTwice",
                "%3 = constant",
                "%2 = constant",
                "test:7:1: %2 is defined twice, at site 'half'"},
        BadText{"Arity",
                "matmul(%0, %1)",
                "matmul(%0)",
                "test:6:1: [matmul] wrong number of inputs; got 1, expected 2, at site "
                "'fc:matmul.0'"},
        BadText{"SiteTwice",
                "@ \"decay:mul.0\"",
                "@ \"fc:matmul.0\"",
                "test:8:1: two different nodes have one site, at site 'fc:matmul.0'"},
        BadText{"InputTwice",
                "name=\"w\"",
                "name=\"x\"",
                "test:5:1: two inputs are named \"x\", at site 'w'"},
        BadText{"OutputOfNothing", "\"y\" = %2", "\"y\" = %7", "test:9:14: %7 is not defined"},
        BadText{"UpdatesUnknown",
                "updates \"w\"",
                "updates \"v\"",
                "test:10:8: [output] 'w.new' updates 'v', which is not an input"},
        BadText{"UpdatesOtherType",
                "updates \"w\"",
                "updates \"x\"",
                "test:10:8: [output] 'w.new' updates input 'x' of another type; got f32[784,10], "
                "expected f32[64,784]"},
        BadText{
            "ZeroSize",
            "shape=[64,784]",
            "shape=[0,784]",
            "test:4:1: [input] every dimension must be at least 1; got f32[0,784], at site 'x'"},
        BadText{"HugeSize",
                "shape=[64,784]",
                "shape=[99999999999999,784]",
                "test:4:1: [input] tensor too large; got f32[99999999999999,784], expected less "
                "than 2^48 bytes, at site 'x'"},
        BadText{"OpenString", "@ \"x\"", "@ \"x", "test:4:66: got '\"x', expected a closing quote"},
        BadText{"Rest", "@ \"x\"", "@ \"x\" y", "test:4:70: got 'y', expected end of line"}),
    [](const auto& bad) { return std::string(bad.param.name); });

TEST(GraphText, EmptyTextIsAnError) {
  EXPECT_EQ(error_of(""), "test:1:1: empty, expected 'ridge.graph/1 \"NAME\"'");
  EXPECT_EQ(error_of("\n# nothing\n"), "test:1:1: empty, expected 'ridge.graph/1 \"NAME\"'");
}

}  // namespace
}  // namespace ridge
