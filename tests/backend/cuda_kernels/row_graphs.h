// Graphs whose loops go over rows, as models have them.
#pragma once

#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"

namespace ridge::test {

inline Graph softmax_of(DType dtype, int64_t rows, int64_t columns) {
  Graph graph("softmax");
  const Value x = input(graph, "x", {dtype, {rows, columns}});
  graph.add_output("y", cast(softmax(cast(x, DType::kF32)), dtype));
  return graph;
}

/// The gradient of a softmax whose result is not kept.
inline Graph softmax_gradient_of(DType dtype, int64_t rows, int64_t columns) {
  Graph graph("softmax_gradient");
  const auto wide = [&](const char* name) {
    return cast(input(graph, name, {dtype, {rows, columns}}), DType::kF32);
  };
  const std::vector<Value> x = {wide("x")}, y = {softmax(x[0])}, dy = {wide("dy")};
  graph.add_output("dx", cast(vector_jacobian_product(y, dy, x)[0], dtype));
  return graph;
}

/// A loss with its gradient.
inline Graph loss_of(DType dtype, int64_t rows, int64_t columns) {
  Graph graph("loss");
  const Value logits = input(graph, "logits", {dtype, {rows, columns}});
  const Value targets = input(graph, "targets", {DType::kI64, {rows}});
  const Value mean = reduce_mean(cross_entropy(cast(logits, DType::kF32), targets));
  graph.add_output("loss", mean);
  graph.add_output("grad", gradients(mean, std::vector<Value>{logits})[0]);
  return graph;
}

/// The gradients of a layer norm.
inline Graph norm_gradient_of(int64_t rows, int64_t columns) {
  Graph graph("norm");
  const auto add = [&](const char* name, Shape shape) {
    return input(graph, name, {DType::kF32, std::move(shape)});
  };
  const std::vector<Value> wrt = {
      add("x", {rows, columns}), add("gamma", {columns}), add("beta", {columns})};
  const std::vector<Value> y = {layer_norm(wrt[0], wrt[1], wrt[2])},
                           dy = {add("dy", {rows, columns})};
  for (const Value& gradient : vector_jacobian_product(y, dy, wrt))
    graph.add_output(fmt::format("{}", graph.outputs().size()), gradient);
  return graph;
}

using Print = cuda::Printing(const Node&, const cuda::DeviceLimits&);

/// The kernels that hold rows in registers, for the loops of the graph behind the passes.
inline std::vector<cuda::PrintedKernel> held_kernels(Graph graph,
                                                     const cuda::DeviceLimits& limits,
                                                     Print* print = cuda::print_kernel) {
  PipelineOptions options;
  if (print == cuda::print_approx_kernel) options.highest = SemanticClass::kReassociation;
  run_pipeline(graph, *make_backend("cpu"), options);
  std::vector<cuda::PrintedKernel> held;
  for (const auto& node : graph.nodes()) {
    if (!node->is<Fused>()) continue;
    cuda::Printing each = print(*node, limits);
    if (each.kernel && each.kernel->source.find("h0[j]") != std::string::npos)
      held.push_back(std::move(*each.kernel));
  }
  return held;
}

}  // namespace ridge::test
