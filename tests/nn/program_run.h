// Runs entry graphs over a state by evaluate(): what a planned program does, the slow way.
#pragma once

#include <string>

#include "ridge/graph/ops/source.h"
#include "ridge/graph/verify.h"
#include "ridge/nn/training.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"

namespace ridge::test {

class ProgramRun {
 public:
  ProgramRun(const std::string& backend, NamedTensors state)
      : backend_(make_backend(backend)), state_(std::move(state)) {}

  NamedTensors& state() { return state_; }

  /// The outputs that update nothing; those that do go into the state. `data` may hold more than
  /// the graph takes in.
  NamedTensors run(const Graph& graph, const NamedTensors& data) {
    verify(graph);
    NamedTensors inputs;
    for (const Node* node : graph.inputs()) {
      const std::string& name = node->op_as<Input>().input_name;
      const bool is_state = state_.contains(name);
      inputs.emplace(name, is_state ? state_.at(name) : data.at(name));
    }
    NamedTensors results = evaluate(graph, *backend_, inputs);
    for (const Output& output : graph.outputs()) {
      if (output.updates.empty()) continue;
      state_.at(output.updates) = std::move(results.at(output.name));
      results.erase(output.name);
    }
    return results;
  }

 private:
  std::unique_ptr<Backend> backend_;
  NamedTensors state_;
};

/// rng as the graphs take it in.
inline Tensor rng_tensor(int64_t seed, int64_t step, int64_t first_sample) {
  Tensor rng(TensorType{DType::kI64, {3}});
  const int64_t values[] = {seed, step, first_sample};
  for (int64_t i = 0; i < 3; ++i) rng.span<int64_t>()[static_cast<size_t>(i)] = values[i];
  return rng;
}

/// Samples [first, first + count) of a batch.
inline Tensor rows(const Tensor& batch, int64_t first, int64_t count) {
  TensorType type = batch.type();
  const int64_t each = batch.elements() / type.shape[0];
  type.shape[0] = count;
  Tensor part(type);
  for (int64_t i = 0; i < part.elements(); ++i) part.set(i, batch.at(first * each + i));
  return part;
}

}  // namespace ridge::test
