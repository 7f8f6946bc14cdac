// Gradients against finite differences.
#pragma once

#include <string>

#include "ridge/backend/backend.h"
#include "ridge/graph/graph.h"
#include "ridge/run/evaluate.h"

namespace ridge::test {

struct GradientCheck {
  std::string problem;  ///< Empty when every float input passed.
  int inputs_checked = 0;
  int unresolved = 0;  ///< Inputs whose derivative is too close to zero to be checked.
  double worst = 0;    ///< Largest relative error met.
};

/// f64 graphs: for each float input x, the derivative of a random weighted sum of all float outputs
/// along a random direction of x, by autodiff on `backend` against extrapolated central differences
/// on `reference`; relative error at most 1e-6.
GradientCheck check_gradients(const Graph& graph,
                              const NamedTensors& inputs,
                              Backend& backend,
                              Backend& reference,
                              uint64_t seed);

}  // namespace ridge::test
