// Shared by tests of patterns: a pass over a small graph, with its outputs before and after.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "ridge/compile/pass.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"

namespace ridge::test {

using BuildCase = std::function<void(Graph&)>;

inline Value data(Graph& graph, const char* name, Shape shape, DType dtype = DType::kF32) {
  return input(graph, name, {dtype, std::move(shape)});
}

inline int64_t count_of(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->name() == op;
  });
}

/// The results of the reference for numbers from -2 to 2.
inline NamedTensors outputs_of(const Graph& graph) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> number(-2, 2);
  NamedTensors inputs;
  for (const Node* node : graph.inputs()) {
    Tensor tensor(node->outputs[0]);
    const bool is_bool = tensor.type().dtype == DType::kBool;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double drawn = number(random);
      // Each row of a mask allows its first key.
      const bool is_first = i % tensor.type().shape.back() == 0;
      tensor.set(i, !is_bool ? drawn : drawn > 0 || is_first ? 1.0 : 0.0);
    }
    inputs.emplace(node->op_as<Input>().input_name, std::move(tensor));
  }
  return evaluate(graph, *make_backend("ref"), inputs);
}

/// Runs the pass over the graph, whose outputs stay the same but for rounding, and which a second
/// run leaves as it is.
inline Graph run_pass(RunPass pass, const BuildCase& build, double error = 2e-6) {
  Graph graph;
  build(graph);
  const NamedTensors before = outputs_of(graph);
  const std::string text = print(graph);
  const auto backend = make_backend("cpu");
  const PipelineOptions options;
  PassContext context{*backend, options};
  const bool changed = pass(graph, context);
  verify(graph);
  EXPECT_EQ(changed, print(graph) != text);
  const NamedTensors after = outputs_of(graph);
  for (const auto& [name, tensor] : before)
    EXPECT_EQ(difference(after.at(name), tensor, error), "") << name << "\n" << print(graph);
  EXPECT_FALSE(pass(graph, context)) << print(graph);
  return graph;
}

}  // namespace ridge::test
