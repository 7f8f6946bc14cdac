// Norms of rows in the orders that exporters write; other axes, other formulas and rows that
// others read stay.
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "tests/compile/pattern_cases.h"

namespace ridge::test {
namespace {

struct Operands {
  Value x, gamma, beta;
};
using Formula = std::function<Value(const Operands&)>;

Graph recognized(const Formula& formula) {
  return run_pass(
      recognize_norms,
      [&](Graph& graph) {
        graph.add_output("y",
                         formula({data(graph, "x", {2, 3, 8}),
                                  data(graph, "gamma", {8}),
                                  data(graph, "beta", {8})}));
      },
      1e-5);
}

Value mean(Value x) { return reduce_mean(x, {-1}, true); }
Value square(Value x) { return x * x; }
Value centered(Value x) { return x - mean(x); }
constexpr double kEps = 1e-5;

const Formula kLayerNorms[] = {
    // TorchScript: ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add.
    [](const Operands& o) {
      const Value c = centered(o.x);
      return c / sqrt(mean(square(c)) + kEps) * o.gamma + o.beta;
    },
    // A subtraction twice.
    [](const Operands& o) {
      const Value variance = mean(square(centered(o.x)));
      return o.beta + o.gamma * (centered(o.x) * rsqrt(variance + kEps));
    },
    // Reciprocal; the scale before the rows; the mean as a sum.
    [](const Operands& o) {
      const Value c = o.x - reduce_sum(o.x, {-1}, true) / 8.0;
      const Value root = sqrt(reduce_sum(square(c), {-1}, true) * 0.125 + kEps);
      return c * (1.0 / root * o.gamma) + o.beta;
    },
    // Without shift, without scale, and without both.
    [](const Operands& o) {
      const Value c = centered(o.x);
      return c / sqrt(constant_like(mean(c), kEps) + mean(square(c))) * o.gamma;
    },
    [](const Operands& o) {
      const Value c = centered(o.x);
      return c * rsqrt(mean(square(c)) + kEps) + o.beta;
    },
    [](const Operands& o) {
      const Value c = centered(o.x);
      return c / sqrt(mean(square(c)) + kEps);
    },
    // Weights that are one number.
    [](const Operands& o) {
      const Value c = centered(o.x), half = constant_like(o.gamma, 0.5);
      return c / sqrt(mean(square(c)) + kEps) * half + constant_like(o.beta, 2.0);
    },
    [](const Operands& o) {
      const Value c = centered(o.x);
      return c / sqrt(mean(square(c)) + kEps) * reshape(o.gamma, {1, 1, 8}) - o.beta;
    },
    // tf2onnx, of tf.nn.batch_normalization.
    [](const Operands& o) {
      const Value m = mean(o.x);
      const Value factor = rsqrt(mean(square(o.x - m)) + kEps) * o.gamma;
      return o.x * factor + (o.beta - m * factor);
    },
    [](const Operands& o) {
      const Value m = mean(o.x);
      const Value factor = rsqrt(mean(square(o.x - m)) + kEps);
      return (constant_like(o.beta, 1.0) - m * factor) + o.x * factor;
    },
};

const Formula kRmsNorms[] = {
    [](const Operands& o) { return o.x * rsqrt(mean(square(o.x)) + kEps) * o.gamma; },
    [](const Operands& o) { return o.gamma * (o.x / sqrt(mean(square(o.x)) + kEps)); },
    [](const Operands& o) { return o.gamma * (o.x * (1.0 / sqrt(mean(o.x * o.x) + kEps))); },
    [](const Operands& o) { return o.x * rsqrt(mean(square(o.x)) + kEps); },
    // Gemma: 1 + gamma.
    [](const Operands& o) { return o.x * rsqrt(mean(square(o.x)) + kEps) * (o.gamma + 1.0); },
};

TEST(RecognizeNorms, EveryOrderIsOneOp) {
  for (const Formula& formula : kLayerNorms) {
    const Graph graph = recognized(formula);
    EXPECT_EQ(count_of(graph, "layer_norm"), 1) << print(graph);
    EXPECT_EQ(count_of(graph, "reduce_mean") + count_of(graph, "reduce_sum"), 0) << print(graph);
  }
  for (const Formula& formula : kRmsNorms) {
    const Graph graph = recognized(formula);
    EXPECT_EQ(count_of(graph, "rms_norm"), 1) << print(graph);
    EXPECT_EQ(count_of(graph, "reduce_mean"), 0) << print(graph);
  }
}

TEST(RecognizeNorms, EpsilonIsKept) {
  const Graph graph =
      recognized([](const Operands& o) { return o.x * rsqrt(mean(square(o.x)) + 0.25) * o.gamma; });
  for (const auto& node : graph.nodes())
    if (node->is<RmsNorm>()) {
      EXPECT_EQ(node->op_as<RmsNorm>().eps, 0.25);
    }
}

// Llama computes in f32 between casts, and scales behind them.
TEST(RecognizeNorms, CastsStayAround) {
  const Graph graph = run_pass(
      recognize_norms,
      [](Graph& made) {
        const Value x = data(made, "x", {4, 8}, DType::kBF16);
        const Value wide = cast(x, DType::kF32);
        const Value y = wide * rsqrt(mean(square(wide)) + 1e-6);
        made.add_output("y", data(made, "gamma", {8}, DType::kBF16) * cast(y, DType::kBF16));
      },
      0.02);
  EXPECT_EQ(count_of(graph, "rms_norm"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "cast"), 2) << print(graph);
}

TEST(RecognizeNorms, OtherFormulasStay) {
  const Formula others[] = {
      // Over another axis, and over two.
      [](const Operands& o) {
        return o.x * rsqrt(reduce_mean(square(o.x), {1}, true) + kEps) * o.gamma;
      },
      [](const Operands& o) {
        return o.x * rsqrt(reduce_mean(square(o.x), {1, 2}, true) + kEps) * o.gamma;
      },
      // No mean, no square, no root, another root, the mean of other numbers.
      [](const Operands& o) { return o.x * rsqrt(reduce_sum(square(o.x), {-1}, true) + kEps); },
      [](const Operands& o) { return o.x * rsqrt(mean(square(o.x) * o.x * o.x) + kEps); },
      [](const Operands& o) { return o.x / (mean(square(o.x)) + kEps); },
      [](const Operands& o) { return o.x * sqrt(mean(square(o.x)) + kEps); },
      [](const Operands& o) { return o.x * rsqrt(mean(square(exp(o.x))) + kEps); },
      // An eps that the op refuses, and one a row.
      [](const Operands& o) { return o.x * rsqrt(mean(square(o.x)) + 2.0); },
      [](const Operands& o) { return o.x * rsqrt(mean(square(o.x)) + mean(exp(o.x))); },
      // The deviation and eps are added.
      [](const Operands& o) { return o.x / (sqrt(mean(square(o.x))) + kEps); },
  };
  for (const Formula& formula : others) {
    const Graph graph = recognized(formula);
    EXPECT_EQ(count_of(graph, "layer_norm") + count_of(graph, "rms_norm"), 0) << print(graph);
  }
}

// A mean that is not that of the rows leaves an RMS norm of the difference.
TEST(RecognizeNorms, OtherCentersAreRmsNorms) {
  const Graph graph = recognized([](const Operands& o) {
    const Value c = o.x - reduce_mean(o.x, {1}, true);
    return c / sqrt(mean(square(c)) + kEps) * o.gamma + o.beta;
  });
  EXPECT_EQ(count_of(graph, "layer_norm"), 0) << print(graph);
  EXPECT_EQ(count_of(graph, "rms_norm"), 1) << print(graph);
}

TEST(RecognizeNorms, WhatOthersReadIsNotMatchedAway) {
  const auto graph_with = [](int extra) {
    return run_pass(
        recognize_norms,
        [&](Graph& made) {
          const Value x = data(made, "x", {6, 8}), c = centered(x);
          const Value variance = mean(square(c)) + kEps;
          const Value y = c / sqrt(variance);
          made.add_output("y", y * data(made, "gamma", {8}) + data(made, "beta", {8}));
          const Value outputs[] = {c, variance, y};
          if (extra >= 0) made.add_output("extra", outputs[extra]);
        },
        1e-5);
  };
  EXPECT_EQ(count_of(graph_with(-1), "layer_norm"), 1);
  EXPECT_EQ(count_of(graph_with(0), "layer_norm"), 0);
  EXPECT_EQ(count_of(graph_with(1), "layer_norm"), 0);
  // The rows before their weights are a norm of their own.
  const Graph inner = graph_with(2);
  EXPECT_EQ(count_of(inner, "layer_norm"), 1) << print(inner);
  EXPECT_EQ(count_of(inner, "mul"), 1) << print(inner);
}

// Weights of another axis or of each row are no weights of the norm.
TEST(RecognizeNorms, OtherWeightsStayOutside) {
  const Graph graph = run_pass(
      recognize_norms,
      [](Graph& made) {
        const Value x = data(made, "x", {8, 8}), c = centered(x);
        const Value y = c / sqrt(mean(square(c)) + kEps);
        made.add_output("y", y * reshape(data(made, "gamma", {8}), {8, 1}) + x);
      },
      1e-5);
  EXPECT_EQ(count_of(graph, "layer_norm"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "mul"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "add"), 1) << print(graph);
}

TEST(RecognizeNorms, AGraphThatTrainsKeepsItsOps) {
  const Graph graph = run_pass(
      recognize_norms,
      [](Graph& made) {
        const Value x = data(made, "x", {6, 8}), c = centered(x);
        const Value y = c / sqrt(mean(square(c)) + kEps) * data(made, "gamma", {8});
        made.add_output("dx", gradients(reduce_sum(y * y), {{x}}).at(0));
      },
      1e-4);
  EXPECT_EQ(count_of(graph, "layer_norm") + count_of(graph, "rms_norm"), 0) << print(graph);
}

}  // namespace
}  // namespace ridge::test
