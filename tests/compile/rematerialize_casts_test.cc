// Numbers of bytes that several loops read: each computes them for itself, from the bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"

namespace ridge::test {
namespace {

constexpr int64_t kPixels = 30, kChannels = 7;

// Values of f32 that are as large as the image, but for outputs of the graph.
int64_t count_images(const Graph& graph) {
  int64_t count = 0;
  for (const auto& node : graph.nodes())
    for (const TensorType& type : node->outputs)
      if (!node->is<Input>() && type == TensorType{DType::kF32, {kPixels, kChannels}}) ++count;
  for (const Output& output : graph.outputs())
    count -= output.value.type() == TensorType{DType::kF32, {kPixels, kChannels}} ? 1 : 0;
  return count;
}

// Multiplies an image, which `numbers` makes of bytes, by the sums of these, as the gate of a block
// does.
Graph gated(Value (*numbers)(Value bytes)) {
  Graph graph("gated");
  const Value x = input(graph, "x", {DType::kU8, {kPixels, kChannels}});
  const Value bytes = cast(cast(x, DType::kF32) * 0.5, DType::kU8);
  const Value image = numbers(bytes);
  const Value sums = cast(reduce_sum_i8(bytes, {0}, true), DType::kF32);
  graph.add_output("y", image * broadcast(sums, image.shape()) + image);
  graph.add_output("z", cast(image, DType::kI32));
  return graph;
}

void expect_same(Graph graph, int64_t images) {
  Tensor x({DType::kU8, {kPixels, kChannels}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i * 37 % 256));
  const auto backend = make_backend("cpu");
  const NamedTensors inputs{{"x", x}}, want = evaluate(graph, *backend, inputs);
  run_pipeline(graph, *backend, {.verify_each = true});
  EXPECT_EQ(count_images(graph), images);
  EXPECT_EQ(bit_difference(evaluate(graph, *backend, inputs), want), "");
}

TEST(RematerializeCasts, LoopsReadBytes) {
  expect_same(gated([](Value bytes) {
                const Value whole = cast(bytes, DType::kI32) - 11.0;
                return cast(whole, DType::kF32) * 0.25;
              }),
              0);
}

TEST(RematerializeCasts, FunctionsAreNotComputedAgain) {
  expect_same(gated([](Value bytes) { return exp(cast(bytes, DType::kF32) * 0.01); }), 1);
}

}  // namespace
}  // namespace ridge::test
