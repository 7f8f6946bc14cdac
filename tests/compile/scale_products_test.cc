// Products of bytes that give numbers themselves, where a model multiplies their sums by scales:
// the same bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"

namespace ridge::test {
namespace {

constexpr int64_t kRows = 6, kDepth = 70, kColumns = 10;

int64_t count_ops(const Graph& graph, std::string_view name) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == name;
  });
}

Tensor tensor(TensorType type, int64_t seed, double unit) {
  Tensor tensor(std::move(type));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>((i * 37 + seed) % 101) * unit);
  return tensor;
}

NamedTensors inputs() {
  NamedTensors inputs;
  inputs.emplace("a", tensor({DType::kU8, {2, kRows / 2, kDepth}}, 3, 1));
  inputs.emplace("b", tensor({DType::kI8, {kDepth, kColumns}}, 5, 1));
  inputs.emplace("zero", tensor({DType::kU8, {}}, 7, 1));
  inputs.emplace("image", tensor({DType::kU8, {1, 5, 5, 3}}, 2, 1));
  inputs.emplace("kernel", tensor({DType::kI8, {3, 3, 3, kColumns}}, 1, 1));
  inputs.emplace("scale", tensor({DType::kF32, {}}, 11, 0.0171));
  inputs.emplace("scales", tensor({DType::kF32, {kColumns}}, 13, 0.0373));
  inputs.emplace("bias", tensor({DType::kF32, {kColumns}}, 17, 0.111));
  return inputs;
}

struct Made {
  Graph graph;
  Value a = input(graph, "a", {DType::kU8, {2, kRows / 2, kDepth}});
  Value b = input(graph, "b", {DType::kI8, {kDepth, kColumns}});
  Value zero = input(graph, "zero", {DType::kU8, {}});
  Value image = input(graph, "image", {DType::kU8, {1, 5, 5, 3}});
  Value kernel = input(graph, "kernel", {DType::kI8, {3, 3, 3, kColumns}});
  Value scale = input(graph, "scale", {DType::kF32, {}});
  Value scales = input(graph, "scales", {DType::kF32, {kColumns}});
  Value bias = input(graph, "bias", {DType::kF32, {kColumns}});

  Value sums() const { return matmul_i8(a, b, zero, {}); }
  Value like(Value x, Value y) const { return broadcast(x, y.shape()); }
  Value numbers(Value sums) const { return cast(sums, DType::kF32); }
};

// Expects so many products of bytes that give f32.
void expect_scaled(Graph& graph, int64_t count) {
  const NamedTensors want = evaluate(graph, *make_backend("ref"), inputs());
  const auto backend = make_backend("cpu");
  run_pipeline(graph, *backend, {.verify_each = true});
  int64_t scaled = 0;
  for (const auto& node : graph.nodes())
    if (node->is<MatMulI8>() || node->is<Conv2dI8>())
      scaled += node->outputs[0].dtype == DType::kF32 ? 1 : 0;
  EXPECT_EQ(scaled, count);
  EXPECT_EQ(bit_difference(evaluate(graph, *backend, inputs()), want), "");
}

TEST(ScaleProducts, ScalesAndBiasAreThoseOfTheProduct) {
  Made m;
  const Value x = m.numbers(m.sums());
  const Value scaled = x * m.like(m.like(m.scale, m.scales) * m.scales, x);
  m.graph.add_output("y", m.like(m.bias, x) + scaled);
  expect_scaled(m.graph, 1);
  EXPECT_EQ(count_ops(m.graph, "matmul_i8"), 1);
}

TEST(ScaleProducts, OneScaleOfAConvolution) {
  Made m;
  const Value x = m.numbers(conv2d_i8(m.image, m.kernel, m.zero, {}));
  m.graph.add_output("y", m.like(m.scale, x) * x);
  expect_scaled(m.graph, 1);
}

TEST(ScaleProducts, SumsThatAreReadElsewhereStay) {
  Made m;
  const Value sums = m.sums(), x = m.numbers(sums);
  m.graph.add_output("y", x * m.like(m.scale, x));
  m.graph.add_output("sums", sums);
  expect_scaled(m.graph, 0);
}

TEST(ScaleProducts, OtherFactorsAreNoScales) {
  Made m;
  const Value x = m.numbers(m.sums());
  const Value rows = input(m.graph, "rows", {DType::kF32, {kRows / 2, 1}});
  m.graph.add_output("y", x * m.like(rows, x));
  Graph graph = std::move(m.graph);
  run_pipeline(graph, *make_backend("cpu"), {.verify_each = true});
  for (const auto& node : graph.nodes())
    if (node->is<MatMulI8>()) {
      EXPECT_EQ(node->outputs[0].dtype, DType::kI32);
    }
}

}  // namespace
}  // namespace ridge::test
