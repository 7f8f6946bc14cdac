// Graphs of models made by hand: what is folded, what is refused and how it is told, in which order
// axes stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ridge/graph/text.h"
#include "ridge/import/onnx/op_table.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"
#include "tests/support/errors.h"

namespace ridge::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ProtoBytes x_of(const std::vector<NamedSize>& sizes, int type = kFloat) {
  return value_bytes("x", type, sizes);
}
// Whatever its type is: outputs have those that their nodes give.
std::vector<ProtoBytes> output_y() { return {value_bytes("y", kFloat, {1})}; }

size_t count(const Graph& graph, std::string_view op) {
  const auto& nodes = graph.nodes();
  return static_cast<size_t>(std::count_if(
      nodes.begin(), nodes.end(), [&](const auto& node) { return node->op->name() == op; }));
}

TEST(OnnxImport, RunsWithWeightsOfTheFile) {
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("MatMul", {"x", "w"}, {"h"}), node_bytes("Relu", {"h"}, {"y"})},
       .initializers = {floats_bytes("w", {2, 2}, {1, -1, 2, -3})},
       .inputs = {x_of({"N", 2})},
       .outputs = output_y()}));
  EXPECT_EQ(model.inputs(), (std::vector<DataSpec>{{"x", DType::kF32, {"N", 2}}}));
  EXPECT_EQ(model.batch_dim(), "N");
  EXPECT_THAT(model.outputs(), ElementsAre("y"));
  const Tensor x = tensor_of({DType::kF32, {3, 2}}, {1, 1, 0, 1, -1, 0});
  const Tensor y = run_model(model, {{"x", x}}).at("y");
  EXPECT_EQ(y.type(), (TensorType{DType::kF32, {3, 2}}));
  EXPECT_THAT(elements_of(y), ElementsAre(3, 0, 2, 0, 0, 1));
}

TEST(OnnxImport, ChecksTheBinding) {
  const OnnxModel model = model_of(model_bytes({.nodes = {node_bytes("Relu", {"x"}, {"y"})},
                                                .initializers = {},
                                                .inputs = {x_of({"batch", 2})},
                                                .outputs = output_y()}));
  EXPECT_THAT(user_error([&] { model.import(); }), HasSubstr("dimension 'batch' has no size"));
  EXPECT_THAT(user_error([&] { model.import({{"batch", 0}}); }), HasSubstr("at least 1"));
  EXPECT_THAT(user_error([&] { model.import({{"batch", int64_t{1} << 60}}); }),
              HasSubstr("too large"));
  EXPECT_THAT(
      user_error([&] { model.import({{"batch", 2}}, {{"z", Tensor({DType::kF32, {1}})}}); }),
      HasSubstr("no input 'z'"));
}

// Nodes that depend on shapes and constants alone leave nothing behind.
TEST(OnnxImport, FoldsShapeArithmetic) {
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("Shape", {"x"}, {"shape"}),
                 node_bytes("Gather", {"shape", "zero"}, {"rows"}, {int_attribute("axis", 0)}),
                 node_bytes("Mul", {"rows", "two"}, {"double"}),
                 node_bytes("Unsqueeze", {"double", "axes"}, {"first"}),
                 node_bytes("Concat", {"first", "rest"}, {"to"}, {int_attribute("axis", 0)}),
                 node_bytes("Reshape", {"x", "to"}, {"y"})},
       .initializers = {tensor_bytes<int64_t>("zero", kInt64, {}, {0}),
                        tensor_bytes<int64_t>("two", kInt64, {}, {2}),
                        integers_bytes("axes", {0}),
                        integers_bytes("rest", {-1})},
       .inputs = {x_of({"N", 4})},
       .outputs = output_y()}));
  const ProgramGraphs program = model.import({{"N", 3}});
  const Graph& graph = program.entries[0];
  EXPECT_EQ(graph.nodes().size(), 2u) << print(graph);
  EXPECT_EQ(graph.outputs()[0].value.shape(), (Shape{6, 2}));
  EXPECT_TRUE(program.state.empty());
}

TEST(OnnxImport, TellsAllThatItCannotDo) {
  const std::string error = user_error([] {
    model_of(model_bytes({.nodes = {node_bytes("Det", {"x"}, {"q"}, {}, "first"),
                                    node_bytes("Unique", {"q"}, {"d"}, {}, "second"),
                                    node_bytes("Det", {"d"}, {"r"}, {}, "third"),
                                    node_bytes("Reshape", {"x", "to"}, {"z"}, {}, "fourth"),
                                    node_bytes("Relu", {"r"}, {"y"})},
                          .initializers = {},
                          .inputs = {x_of({4}), value_bytes("to", kInt64, {1})},
                          .outputs = output_y()}))
        .import();
  });
  EXPECT_THAT(error, HasSubstr("model: 4 of its nodes cannot be imported:"));
  EXPECT_THAT(error, HasSubstr("2 x Det: the operator is not supported (first, third)"));
  EXPECT_THAT(error, HasSubstr("1 x Unique: the operator is not supported (second)"));
  EXPECT_THAT(error, HasSubstr("1 x Reshape: its shape is data of a run (fourth)"));
  EXPECT_THAT(error, Not(HasSubstr("Relu")));
}

// The nodes of branches are told, too, though nobody knows which of them would run.
TEST(OnnxImport, TellsWhatBranchesHold) {
  const ProtoBytes branch = graph_bytes({.nodes = {node_bytes("Strange", {}, {"b"}, {}, "inner")},
                                         .initializers = {},
                                         .inputs = {},
                                         .outputs = {value_bytes("b", kFloat, {1})}});
  const std::string error = user_error([&] {
    model_of(model_bytes({.nodes = {node_bytes("Odd", {"x"}, {"c"}),
                                    node_bytes("If",
                                               {"c"},
                                               {"y"},
                                               {graph_attribute("then_branch", branch),
                                                graph_attribute("else_branch", branch)})},
                          .initializers = {},
                          .inputs = {x_of({1}, kBool)},
                          .outputs = output_y()}))
        .import();
  });
  EXPECT_THAT(error, HasSubstr("1 x Odd"));
  EXPECT_THAT(error, HasSubstr("2 x Strange: the operator is not supported (inner, inner)"));
}

// y = 2 x where the condition holds, else x - 1.
OnnxModel branching() {
  const auto branch = [](std::string_view op, float number) {
    return graph_bytes({.nodes = {node_bytes(op, {"x", "k"}, {"b"})},
                        .initializers = {floats_bytes("k", {}, {number})},
                        .inputs = {},
                        .outputs = {value_bytes("b", kFloat, {2})}});
  };
  return model_of(
      model_bytes({.nodes = {node_bytes("If",
                                        {"c"},
                                        {"y"},
                                        {graph_attribute("then_branch", branch("Mul", 2)),
                                         graph_attribute("else_branch", branch("Sub", 1))})},
                   .initializers = {},
                   .inputs = {x_of({2}), value_bytes("c", kBool, {})},
                   .outputs = output_y()}));
}

TEST(OnnxImport, ChoosesBranchesOfKnownConditions) {
  const OnnxModel model = branching();
  const Tensor x = tensor_of({DType::kF32, {2}}, {3, 4});
  const auto y_where = [&](double condition) {
    return elements_of(
        run_model(model, {{"x", x}}, {{"c", tensor_of({DType::kBool, {}}, {condition})}}).at("y"));
  };
  EXPECT_THAT(y_where(1), ElementsAre(6, 8));
  EXPECT_THAT(y_where(0), ElementsAre(2, 3));
  EXPECT_THAT(user_error([&] { model.import(); }), HasSubstr("If: its condition is data of a run"));
}

// Each of `times` iterations adds the number of the iteration, and hands on what it has then.
// Without a number it goes on for ever.
OnnxModel looping(std::optional<int64_t> times) {
  const ProtoBytes body =
      graph_bytes({.nodes = {node_bytes("Cast", {"i"}, {"f"}, {int_attribute("to", kFloat)}),
                             node_bytes("Add", {"before", "f"}, {"after"}),
                             node_bytes("Identity", {"c"}, {"again"}),
                             node_bytes("Identity", {"after"}, {"seen"})},
                   .initializers = {},
                   .inputs = {value_bytes("i", kInt64, {}),
                              value_bytes("c", kBool, {}),
                              value_bytes("before", kFloat, {2})},
                   .outputs = {value_bytes("again", kBool, {}),
                               value_bytes("after", kFloat, {2}),
                               value_bytes("seen", kFloat, {2})}});
  return model_of(model_bytes(
      {.nodes = {node_bytes(
           "Loop", {times ? "times" : "", "", "x"}, {"y", "all"}, {graph_attribute("body", body)})},
       .initializers = {tensor_bytes<int64_t>("times", kInt64, {}, {times.value_or(0)})},
       .inputs = {x_of({2})},
       .outputs = {value_bytes("y", kFloat, {2}), value_bytes("all", kFloat, {3, 2})}}));
}

TEST(OnnxImport, UnrollsLoopsOfKnownLength) {
  const Tensor x = tensor_of({DType::kF32, {2}}, {10, 20});
  const NamedTensors outputs = run_model(looping(3), {{"x", x}});
  EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(13, 23));
  EXPECT_EQ(outputs.at("all").type().shape, (Shape{3, 2}));
  EXPECT_THAT(elements_of(outputs.at("all")), ElementsAre(10, 20, 11, 21, 13, 23));
  EXPECT_THAT(user_error([] { looping(std::nullopt).import(); }), HasSubstr("more than"));
}

// Fractions of powers of integers are cut off, as a cast does it.
TEST(OnnxImport, PowersOfIntegersAreCutOff) {
  const OnnxModel model =
      model_of(model_bytes({.nodes = {node_bytes("Pow", {"x", "half"}, {"y"})},
                            .initializers = {floats_bytes("half", {2, 1}, {0.5f, 3.0f})},
                            .inputs = {x_of({6}, kInt32)},
                            .outputs = output_y()}));
  const Tensor x = tensor_of({DType::kI32, {6}}, {0, 1, 3, 4, 8, 99});
  EXPECT_THAT(elements_of(run_model(model, {{"x", x}}).at("y")),
              ElementsAre(0, 1, 1, 2, 2, 9, 0, 1, 27, 64, 512, 970299));
}

// Roundings of an exponential and a logarithm would show: 10^2 were 99.99999999999997.
TEST(OnnxImport, PowersOfFloatsAreExact) {
  constexpr int kDouble = 11;
  const std::vector<double> a{10, 10, 5, 3, 0.5, 16, -3, -0.0, 7, 1, -1, HUGE_VAL},
      b{2, 15, -0.0, 13, 20, 0.75, 3, -3, 5, HUGE_VAL, HUGE_VAL, -1};
  for (const auto& [type, dtype] :
       {std::pair(kFloat, DType::kF32), std::pair(kDouble, DType::kF64)}) {
    const OnnxModel model = model_of(
        model_bytes({.nodes = {node_bytes("Pow", {"a", "b"}, {"y"})},
                     .initializers = {},
                     .inputs = {value_bytes("a", type, {12}), value_bytes("b", type, {12})},
                     .outputs = {value_bytes("y", type, {12})}}));
    const Tensor y =
        run_model(model, {{"a", tensor_of({dtype, {12}}, a)}, {"b", tensor_of({dtype, {12}}, b)}})
            .at("y");
    for (int64_t i = 0; i < 12; ++i) {
      const double wanted = std::pow(a[static_cast<size_t>(i)], b[static_cast<size_t>(i)]);
      EXPECT_EQ(y.at(i), dtype == DType::kF32 ? static_cast<float>(wanted) : wanted);
    }
  }
}

// Integers of 64 bits have more digits than an f64.
TEST(OnnxImport, LargeIntegersAreDividedExactly) {
  constexpr int64_t kLarge = int64_t{1} << 53, kLargest = INT64_MAX;
  const std::vector<int64_t> a{kLarge + 1, -kLarge - 3, kLargest, kLargest, 7, -7, kLargest - 1},
      b{1, 1, 3, -10, -2, 2, kLargest};
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("Div", {"x", "b"}, {"y"}), node_bytes("Mod", {"x", "b"}, {"z"})},
       .initializers = {integers_bytes("b", b)},
       .inputs = {x_of({7}, kInt64)},
       .outputs = {value_bytes("y", kInt64, {7}), value_bytes("z", kInt64, {7})}}));
  Tensor x({DType::kI64, {7}});
  std::copy(a.begin(), a.end(), x.span<int64_t>().begin());
  const NamedTensors outputs = run_model(model, {{"x", x}});
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(outputs.at("y").span<int64_t>()[i], a[i] / b[i]) << a[i] << " by " << b[i];
    const int64_t rest = a[i] % b[i];  // which ONNX gives the sign of the divisor
    EXPECT_EQ(outputs.at("z").span<int64_t>()[i],
              rest != 0 && (rest < 0) != (b[i] < 0) ? rest + b[i] : rest)
        << a[i] << " by " << b[i];
  }
}

// Quotients of floats have any number of digits; the C library's remainders have no rounding. The
// second op makes it a loop of both.
TEST(OnnxImport, RemaindersOfFloatsAreExact) {
  constexpr int kDouble = 11;
  const std::vector<double> a{1e20, -3e38, 1e30, 5.5, -7.25, 1e10, 2, 3, HUGE_VAL, 1e-40},
      b{3, 1e-40, -7e-3, 2, 0.1, 0.3, HUGE_VAL, 0, 2, 3e-44};
  for (const auto& [type, dtype] :
       {std::pair(kFloat, DType::kF32), std::pair(kDouble, DType::kF64)}) {
    const OnnxModel model = model_of(
        model_bytes({.nodes = {node_bytes("Mod", {"a", "b"}, {"y"}, {int_attribute("fmod", 1)}),
                               node_bytes("Neg", {"y"}, {"z"})},
                     .initializers = {},
                     .inputs = {value_bytes("a", type, {10}), value_bytes("b", type, {10})},
                     .outputs = {value_bytes("z", type, {10})}}));
    const Tensor x = tensor_of({dtype, {10}}, a), z = tensor_of({dtype, {10}}, b);
    const Tensor y = run_model(model, {{"a", x}, {"b", z}}).at("z");
    for (int64_t i = 0; i < 10; ++i) {
      const double wanted = -std::fmod(x.at(i), z.at(i));
      EXPECT_TRUE(y.at(i) == wanted || (std::isnan(y.at(i)) && std::isnan(wanted)))
          << x.at(i) << " by " << z.at(i) << " leaves " << y.at(i) << ", not " << wanted;
    }
  }
}

// A place a quarter before the first of two elements stays: the last of its four taps is the second
// one. A place further outside is moved onto the border, along its own axis alone.
TEST(OnnxImport, CubicSamplesNearTheBorder) {
  const auto text = [](std::string_view name, std::string_view value) {
    return ProtoBytes().text(1, name).text(4, value).number(20, 3);
  };
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("GridSample",
                            {"x", "grid"},
                            {"y"},
                            {text("mode", "bicubic"), text("padding_mode", "border")})},
       .initializers = {floats_bytes("grid", {1, 1, 3, 2}, {-0.75, 0, -3, 0, -0.75, 3})},
       .inputs = {x_of({1, 1, 2, 2})},
       .outputs = output_y()}));
  const Tensor x = tensor_of({DType::kF32, {1, 1, 2, 2}}, {0, 1, 0, 1});
  EXPECT_THAT(elements_of(run_model(model, {{"x", x}}).at("y")),
              ElementsAre(-0.10546875, 0, -0.10546875));
}

// Up to opset 9 TopK has k as an attribute.
TEST(OnnxImport, TopKOfOldModels) {
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("TopK", {"x"}, {"y", "at"}, {int_attribute("k", 2)})},
       .initializers = {},
       .inputs = {x_of({2, 3})},
       .outputs = {value_bytes("y", kFloat, {2, 2}), value_bytes("at", kInt64, {2, 2})}},
      9));
  const Tensor x = tensor_of({DType::kF32, {2, 3}}, {1, 3, 2, 6, 4, 5});
  const NamedTensors outputs = run_model(model, {{"x", x}});
  EXPECT_THAT(elements_of(outputs.at("y")), ElementsAre(3, 2, 6, 5));
  EXPECT_THAT(elements_of(outputs.at("at")), ElementsAre(1, 2, 0, 2));
}

// An image stays in the order that convolutions read until something asks for ONNX's.
TEST(OnnxImport, ImagesAreMovedOnce) {
  std::vector<float> weights(8 * 8 * 9);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) - 2.0f;
  const auto conv = [](const std::string& from, const std::string& to) {
    return node_bytes("Conv", {from, "w", "b"}, {to}, {ints_attribute("pads", {1, 1, 1, 1})});
  };
  const OnnxModel model =
      model_of(model_bytes({.nodes = {conv("x", "a"),
                                      node_bytes("Relu", {"a"}, {"b1"}),
                                      conv("b1", "c"),
                                      node_bytes("Add", {"c", "b1"}, {"d"}),
                                      node_bytes("GlobalAveragePool", {"d"}, {"e"}),
                                      node_bytes("Flatten", {"e"}, {"y"})},
                            .initializers = {floats_bytes("w", {8, 8, 3, 3}, weights),
                                             floats_bytes("b", {8}, std::vector<float>(8, 0.5f))},
                            .inputs = {x_of({1, 8, 4, 4})},
                            .outputs = output_y()}));
  const ProgramGraphs program = model.import();
  const Graph& graph = program.entries[0];
  EXPECT_EQ(count(graph, "conv2d"), 2u);
  EXPECT_LE(count(graph, "transpose"), 2u) << print(graph);
  // The weights are moved while the model is imported, once.
  EXPECT_EQ(program.state.size(), 1u) << print(graph);
}

TEST(OnnxImport, IndicesOutsideOfAnAxisAreAnError) {
  const auto error_of = [](int64_t index) {
    return user_error([&] {
      model_of(model_bytes({.nodes = {node_bytes("Gather", {"x", "i"}, {"y"})},
                            .initializers = {integers_bytes("i", {0, index})},
                            .inputs = {x_of({3})},
                            .outputs = output_y()}))
          .import();
    });
  };
  EXPECT_EQ(error_of(-3), "no error");
  EXPECT_THAT(error_of(3), HasSubstr("index 3 is outside of an axis of 3"));
  EXPECT_THAT(error_of(-4), HasSubstr("index -4 is outside"));
}

// Such an index would name an element of the next row.
TEST(OnnxImport, IndicesOfARunAreChecked) {
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("GatherElements", {"x", "i"}, {"y"}, {int_attribute("axis", 1)})},
       .initializers = {},
       .inputs = {x_of({2, 3}), value_bytes("i", kInt64, {2, 1})},
       .outputs = output_y()}));
  const Tensor x = tensor_of({DType::kF32, {2, 3}}, {1, 2, 3, 4, 5, 6});
  const auto y_of = [&](double index) {
    const Tensor i = tensor_of({DType::kI64, {2, 1}}, {index, 0});
    return elements_of(run_model(model, {{"x", x}, {"i", i}}).at("y"));
  };
  EXPECT_THAT(y_of(2), ElementsAre(3, 4));
  EXPECT_THAT(y_of(-3), ElementsAre(1, 4));
  EXPECT_THAT(user_error([&] { y_of(3); }), HasSubstr("out of range"));
  EXPECT_THAT(user_error([&] { y_of(-4); }), HasSubstr("out of range"));
}

TEST(OnnxImport, LargeResultsAreNotComputedWhileImporting) {
  const OnnxModel model = model_of(
      model_bytes({.nodes = {node_bytes("ConstantOfShape", {"s"}, {"big"}),
                             node_bytes("Add", {"big", "x"}, {"y"})},
                   .initializers = {integers_bytes("s", {int64_t{1} << 20, int64_t{1} << 20})},
                   .inputs = {x_of({1})},
                   .outputs = output_y()}));
  const ProgramGraphs program = model.import();
  EXPECT_EQ(program.entries[0].outputs()[0].value.shape(),
            (Shape{int64_t{1} << 20, int64_t{1} << 20}));
}

// Graphs of several bindings read one state: a constant that depends on the binding has a name of
// its own.
// Weights that are dequantized use up what an import computes of large values; shapes behind them
// are known all the same.
TEST(OnnxImport, ShapesAreKnownBehindManyWeights) {
  constexpr int kLayers = 40;
  std::vector<ProtoBytes> nodes;
  for (int i = 0; i < kLayers; ++i)
    nodes.push_back(node_bytes("DequantizeLinear", {"w", "s"}, {fmt::format("d{}", i)}));
  nodes.push_back(node_bytes("Identity", {fmt::format("d{}", kLayers - 1)}, {"last"}));
  nodes.push_back(node_bytes("Shape", {"x"}, {"shape"}));
  nodes.push_back(node_bytes("Gather", {"shape", "one"}, {"length"}));
  nodes.push_back(node_bytes("Range", {"zero", "length", "one"}, {"y"}));
  constexpr int kInt8 = 3;
  std::vector<int8_t> w(1 << 20);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<int8_t>(i);
  const std::vector<int64_t> zero{0}, one{1};
  const OnnxModel model = model_of(
      model_bytes({.nodes = std::move(nodes),
                   .initializers = {tensor_bytes("w", kInt8, {1024, 1024}, w),
                                    floats_bytes("s", {}, {0.5f}),
                                    tensor_bytes("zero", kInt64, {}, zero),
                                    tensor_bytes("one", kInt64, {}, one)},
                   .inputs = {x_of({"N", 3})},
                   .outputs = {output_y()[0], value_bytes("last", kFloat, {1024, 1024})}}));
  const ProgramGraphs program = model.import({{"N", 2}});
  EXPECT_GT(count(program.entries[0], "mul"), 0u) << "all weights were computed";
  const Tensor x({DType::kF32, {2, 3}});
  EXPECT_THAT(elements_of(run_model(model, {{"x", x}}).at("y")), ElementsAre(0, 1, 2));
}

TEST(OnnxImport, BindingsShareAState) {
  const OnnxModel model = model_of(model_bytes(
      {.nodes = {node_bytes("Shape", {"x"}, {"s"}),
                 node_bytes("Expand", {"w", "s"}, {"e"}),
                 node_bytes("CumSum", {"e", "zero"}, {"table"}),
                 node_bytes("Add", {"x", "table"}, {"z"}),
                 node_bytes("MatMul", {"z", "m"}, {"y"})},
       .initializers = {floats_bytes("w", {1, 4}, {1, 2, 3, 4}),
                        tensor_bytes<int64_t>("zero", kInt64, {}, {0}),
                        floats_bytes(
                            "m", {4, 5}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                                            1, 2, 3, 4, 5, 6, 7, 8, 9, 0})},
       .inputs = {x_of({"N", 4})},
       .outputs = output_y()}));
  const ProgramGraphs five = model.import({{"N", 5}}), six = model.import({{"N", 6}});
  ASSERT_EQ(five.state.size(), 2u);
  ASSERT_EQ(six.state.size(), 2u);
  for (const StateEntry& a : five.state)
    for (const StateEntry& b : six.state) {
      EXPECT_EQ(a.name == b.name, a.name == "m" && b.name == "m");
      EXPECT_EQ(a.constant->bytes.data() == b.constant->bytes.data(), a.name == b.name);
    }
}

TEST(OnnxTable, HasEachOperatorOnceAVersion) {
  const std::vector<onnx::OpRow> rows = onnx::all_ops();
  EXPECT_GT(rows.size(), 100u);
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t k = i + 1; k < rows.size(); ++k)
      EXPECT_FALSE(rows[i].name == rows[k].name && rows[i].domain == rows[k].domain &&
                   rows[i].first <= rows[k].last && rows[k].first <= rows[i].last)
          << rows[i].name;
}

}  // namespace
}  // namespace ridge::test
