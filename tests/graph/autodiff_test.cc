// Autodiff beyond single ops, which the registry walk checks.
#include "ridge/graph/autodiff.h"

#include <gtest/gtest.h>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/gradient_check.h"

namespace ridge {
namespace {

// Evaluates d loss / d wrt at the scalar x = 3 on the reference.
double derivative_at_three(const std::function<Value(Value)>& f) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF64, {}});
  const Value wrt[] = {x};
  graph.add_output("dx", gradients(f(x), wrt)[0]);
  Tensor three(TensorType{DType::kF64, {}});
  three.set(0, 3.0);
  return evaluate(graph, *make_backend("ref"), {{"x", three}}).at("dx").at(0);
}

TEST(Autodiff, AddsOverEveryUse) {
  EXPECT_DOUBLE_EQ(derivative_at_three([](Value x) { return x * x * x; }), 27.0);
  EXPECT_DOUBLE_EQ(derivative_at_three([](Value x) { return x + x + x; }), 3.0);
  EXPECT_DOUBLE_EQ(derivative_at_three([](Value x) { return x; }), 1.0);
}

TEST(Autodiff, UnusedValueHasZeroGradient) {
  EXPECT_EQ(derivative_at_three([](Value x) { return constant_like(x, 5.0); }), 0.0);
  EXPECT_EQ(derivative_at_three([](Value x) { return sign(x) * 2.0; }), 0.0);
}

TEST(Autodiff, SecondDerivative) {
  const double second = derivative_at_three([](Value x) {
    const Value wrt[] = {x};
    return gradients(x * x * x * x, wrt)[0];
  });
  EXPECT_DOUBLE_EQ(second, 12.0 * 9.0);
}

TEST(Autodiff, IntermediateValueAndWhatItIsMadeOf) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF64, {}});
  const Value h = x * x, loss = h * h;  // x^4
  const Value wrt[] = {x, h};
  const auto gradient = gradients(loss, wrt);
  graph.add_output("dx", gradient[0]);
  graph.add_output("dh", gradient[1]);
  Tensor three(TensorType{DType::kF64, {}});
  three.set(0, 3.0);
  const NamedTensors results = evaluate(graph, *make_backend("ref"), {{"x", three}});
  EXPECT_DOUBLE_EQ(results.at("dx").at(0), 4.0 * 27.0);
  EXPECT_DOUBLE_EQ(results.at("dh").at(0), 2.0 * 9.0);
}

// The operands of a fused op may depend on each other, or be one value: its own gradient must take
// them as independent.
TEST(Autodiff, FusedOpWithDependentOperands) {
  test::CaseBuilder b(DType::kF64, 5);
  const Value x = b.input({4, 6});
  const Value gamma = reduce_mean(x, {0});
  b.finish({layer_norm(x, gamma, gamma)});
  const auto ref = make_backend("ref");
  const auto check = test::check_gradients(b.graph(), b.tensors(), *ref, *ref, 1);
  EXPECT_EQ(check.problem, "");
  EXPECT_EQ(check.inputs_checked, 1);
}

TEST(Autodiff, GradientSitesNameWhatTheyDifferentiate) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF64, {}});
  Value loss;
  {
    const SiteScope scope(graph, "layer");
    loss = tanh(x);
  }
  const size_t forward = graph.nodes().size();
  const Value wrt[] = {x};
  gradients(loss, wrt);
  int named = 0;
  for (size_t i = forward; i < graph.nodes().size(); ++i)
    named += graph.nodes()[i]->site.name.starts_with("layer:tanh.0/grad:");
  EXPECT_GE(named, 3);
}

TEST(Autodiff, RefusesWhatHasNoGradient) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF64, {1, 4, 4, 1}});
  const Value pooled = max_pool2d(x, {{2, 2}, {{2, 2}, {0, 0, 0, 0}, {1, 1}}});
  const Value wrt[] = {x};
  const Value dx = gradients(reduce_sum(pooled * pooled), wrt)[0];
  try {
    gradients(reduce_sum(dx * dx), wrt);
    FAIL() << "a second derivative of max pooling";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "[max_pool2d_grad] has no gradient, and one is asked for at site "
                 "':max_pool2d.0/grad:max_pool2d_grad.0'");
  }
}

TEST(Autodiff, RefusesLossesThatAreNotFloatScalars) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF64, {2}});
  const Value i = input(graph, "i", {DType::kI32, {}});
  const Value wrt[] = {x}, whole[] = {i};
  EXPECT_THROW(gradients(x, wrt), UserError);
  EXPECT_THROW(gradients(i, wrt), UserError);
  EXPECT_THROW(gradients(reduce_sum(x), whole), UserError);
}

}  // namespace
}  // namespace ridge
