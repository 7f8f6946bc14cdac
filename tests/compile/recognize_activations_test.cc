// GELU and SiLU in the orders that exporters write; formulas that are nearly theirs stay.
#include <numbers>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "tests/compile/pattern_cases.h"

namespace ridge::test {
namespace {

using Formula = std::function<Value(Value)>;

Graph recognized(const Formula& formula, DType dtype = DType::kF32) {
  return run_pass(
      recognize_activations,
      [&](Graph& graph) {
        // A product, as x is one in a gated network.
        const Value x = data(graph, "a", {3, 5}, dtype) * data(graph, "b", {3, 5}, dtype);
        graph.add_output("y", formula(x));
      },
      dtype == DType::kF32 ? 2e-6 : 0.05);
}

Value square(Value x) { return x * x; }

const double kSlope = 0.7978845608028654;

const Formula kErfForms[] = {
    // PyTorch's TorchScript and dynamo exporters, BERT of Hugging Face, tf2onnx.
    [](Value x) { return x * (erf(x / std::numbers::sqrt2) + 1.0) * 0.5; },
    [](Value x) { return (x * 0.5) * (constant_like(x, 1) + erf(x * 0.70710678)); },
    [](Value x) { return x * (constant_like(x, 0.5) * (erf(x / 1.4142135) + 1.0)); },
    [](Value x) { return constant_like(x, 0.5) * x * (1.0 - neg(erf(x / 1.41421356))); },
    [](Value x) { return (erf(constant_like(x, 0.70710677) * x) + 1.0) * x / 2.0; },
    [](Value x) { return x * 0.5 * (1.0 - erf(neg(x) / std::numbers::sqrt2)); },
    [](Value x) { return x * 0.5 * (1.0 - erf(neg(x * 0.70710678))); },
};

const Formula kTanhForms[] = {
    [](Value x) { return x * 0.5 * (tanh((x + x * square(x) * 0.044715) * kSlope) + 1.0); },
    [](Value x) {
      const Value cubic = constant_like(x, 0.044715) * (x * x * x);
      return constant_like(x, 0.5) * (x * (constant_like(x, 1) + tanh((cubic + x) * 0.79788456)));
    },
    [](Value x) {
      const Value inner = x * 0.7978845608 * (constant_like(x, 1) + (x * 0.044715) * x);
      return x * 0.5 * (constant_like(x, 1) + tanh(inner));
    },
    [](Value x) { return x * ((tanh((x + square(x) * x * 0.044715) * kSlope) + 1.0) / 2.0); },
};

const Formula kSiluForms[] = {
    [](Value x) { return x * sigmoid(x); },
    [](Value x) { return sigmoid(x) * x; },
    [](Value x) { return x / (exp(neg(x)) + 1.0); },
    [](Value x) { return x * (1.0 / (constant_like(x, 1) + exp(neg(x)))); },
};

TEST(RecognizeActivations, EveryOrderIsOneOp) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Formula& formula : kErfForms) {
      const Graph graph = recognized(formula, dtype);
      EXPECT_EQ(count_of(graph, "gelu"), 1) << print(graph);
      EXPECT_EQ(count_of(graph, "erf") + count_of(graph, "constant"), 0) << print(graph);
    }
    for (const Formula& formula : kTanhForms) {
      const Graph graph = recognized(formula, dtype);
      EXPECT_EQ(count_of(graph, "gelu"), 1) << print(graph);
      EXPECT_EQ(count_of(graph, "tanh"), 0) << print(graph);
    }
    for (const Formula& formula : kSiluForms) {
      const Graph graph = recognized(formula, dtype);
      EXPECT_EQ(count_of(graph, "silu"), 1) << print(graph);
      EXPECT_EQ(count_of(graph, "sigmoid") + count_of(graph, "exp"), 0) << print(graph);
    }
  }
}

TEST(RecognizeActivations, ConstantsAreReadAsTheDtypeHoldsThem) {
  const auto with = [](double number) {
    return [number](Value x) { return x * 0.5 * (erf(x * number) + 1.0); };
  };
  const double root = 1 / std::numbers::sqrt2;
  EXPECT_EQ(count_of(recognized(with(root * (1 + 1e-6)), DType::kF32), "gelu"), 0);
  EXPECT_EQ(count_of(recognized(with(root * (1 + 1e-6)), DType::kBF16), "gelu"), 1);
  EXPECT_EQ(count_of(recognized(with(root * 1.05), DType::kBF16), "gelu"), 0);
}

TEST(RecognizeActivations, OtherFormulasStay) {
  const Formula others[] = {
      [](Value x) { return x * (erf(x / std::numbers::sqrt2) + 1.0); },
      [](Value x) { return x * 0.5 * (erf(x / 1.4) + 1.0); },
      [](Value x) { return x * 0.5 * (erf(x / std::numbers::sqrt2) + 0.5); },
      [](Value x) { return x * 0.5 * (1.0 - erf(x / std::numbers::sqrt2)); },
      [](Value x) { return exp(x) * 0.5 * (erf(x / std::numbers::sqrt2) + 1.0); },
      [](Value x) { return x * 0.5 * (tanh((x + x * x * x * 0.044) * kSlope) + 1.0); },
      [](Value x) { return x * 0.5 * (tanh((x + x * x * 0.044715) * kSlope) + 1.0); },
      [](Value x) { return x * 0.5 * (tanh((x - x * x * x * 0.044715) * kSlope) + 1.0); },
      [](Value x) { return x * 0.5 * (tanh(x * kSlope) + 1.0); },
      [](Value x) { return x * sigmoid(x * 1.702); },
      [](Value x) { return x * sigmoid(exp(x)); },
      [](Value x) { return x / (exp(x) + 1.0); },
      [](Value x) { return x / (exp(neg(x)) + 2.0); },
  };
  for (const Formula& formula : others) {
    const Graph graph = recognized(formula);
    EXPECT_EQ(count_of(graph, "gelu") + count_of(graph, "silu"), 0) << print(graph);
  }
}

TEST(RecognizeActivations, WhatOthersReadIsNotMatchedAway) {
  const auto count = [](bool gate, bool argument) {
    const Graph graph = run_pass(recognize_activations, [&](Graph& made) {
      const Value x = data(made, "x", {3, 5});
      const Value z = x / std::numbers::sqrt2, f = erf(z) + 1.0;
      made.add_output("y", x * 0.5 * f);
      if (gate) made.add_output("f", f);
      if (argument) made.add_output("z", z);
    });
    return count_of(graph, "gelu");
  };
  EXPECT_EQ(count(false, false), 1);
  EXPECT_EQ(count(true, false), 0);
  EXPECT_EQ(count(false, true), 0);
}

// A scalar x is no x of the shape of the result.
TEST(RecognizeActivations, ShapesCount) {
  const Graph graph = run_pass(recognize_activations, [](Graph& made) {
    const Value row = data(made, "x", {5});
    const Value many = data(made, "z", {3, 5});
    made.add_output("y", row * sigmoid(row) + many);
    made.add_output("z", many * sigmoid(row));
  });
  EXPECT_EQ(count_of(graph, "silu"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "sigmoid"), 1) << print(graph);
}

// Gradients read what lies between: the graph of a training step keeps its ops.
TEST(RecognizeActivations, AGraphThatTrainsKeepsItsOps) {
  const Graph graph = run_pass(recognize_activations, [](Graph& made) {
    const Value x = data(made, "x", {3, 5});
    const Value y = x * 0.5 * (erf(x / std::numbers::sqrt2) + 1.0);
    made.add_output("y", y);
    made.add_output("dx", gradients(reduce_sum(y * y), {{x}}).at(0));
  });
  EXPECT_EQ(count_of(graph, "gelu"), 0) << print(graph);
}

}  // namespace
}  // namespace ridge::test
