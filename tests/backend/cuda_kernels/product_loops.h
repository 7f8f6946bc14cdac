// Products together with loops that read them, as lone nodes.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::test {

/// What a loop makes of the product and of its other inputs, all of them f32.
using LoopBody = std::function<std::vector<Value>(Value, const std::vector<Value>&)>;

/// The results of the node of `a`, `b` and the other inputs of the loop.
inline std::vector<Value> product_in_loop(
    MatMul product, Value a, Value b, const std::vector<Value>& others, const LoopBody& write) {
  product.accumulate = DType::kF32;
  const TensorType made = product.infer(std::vector<TensorType>{a.type(), b.type()})[0];
  Graph body("fused"), alone("alone");
  std::vector<Value> inputs{input(alone, "0", made)}, read;
  const Value x = cast(input(body, "0", made), DType::kF32);
  for (const Value& other : others) {
    const std::string name = fmt::format("{}", inputs.size());
    inputs.push_back(input(alone, name, other.type()));
    read.push_back(cast(input(body, name, other.type()), DType::kF32));
  }
  for (const Value& result : write(x, read))
    body.add_output(fmt::format("{}", body.outputs().size()), result);
  const auto& loop = fused(alone, body, inputs, Site{"loop"}).op_as<Fused>();
  Graph& graph = *a.node->graph;
  Node& node = fused_matmul(graph, product, loop, a, b, others, graph.next_site("product"));
  std::vector<Value> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) results.push_back({&node, static_cast<int>(i)});
  return results;
}

/// A bias and GELU, and what GELU read.
inline std::vector<Value> bias_and_gelu(Value x, const std::vector<Value>& others, DType dtype) {
  const Value sum = x + broadcast(others[0], x.shape());
  return {cast(gelu(sum, GeluForm::kTanh), dtype), cast(sum, dtype)};
}

/// A bias and what runs beside the layer, which stays f32.
inline std::vector<Value> bias_and_sum(Value x, const std::vector<Value>& others, DType dtype) {
  const Value sum = x + broadcast(others[0], x.shape()) + others[1];
  return {sum, cast(sum, dtype)};
}

/// The gradient of a square, of another shape, and a number a row.
inline std::vector<Value> slope(Value x, const std::vector<Value>& others, DType dtype) {
  const Value rows = broadcast(others[1], x.shape());
  return {
      cast(reshape(x * others[0] * constant_like(x, 2.0) - rows, {x.type().elements()}), dtype)};
}

}  // namespace ridge::test
