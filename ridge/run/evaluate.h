// Runs a graph node by node, each result in a buffer of its own: no plan, no passes. The slow and
// plain way, against which planned execution is checked.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/graph.h"

namespace ridge {

/// Id of the candidate to use for a node.
using ChooseKernel = std::function<size_t(const Node&, const std::vector<Choice>&)>;

/// The outputs of `graph`, by name. UserError when an input is missing, unknown or of another type,
/// or when a node's data are wrong (with the site); an op that the backend lacks is expanded into
/// plain ops where it can be, else a UserError. `choose` picks each node's kernel (default: the
/// first).
NamedTensors evaluate(const Graph& graph,
                      Backend& backend,
                      const NamedTensors& inputs,
                      const ChooseKernel& choose = nullptr);

}  // namespace ridge
