// What a graph costs, by op.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

struct OpSummary {
  std::string op;
  int nodes = 0;
  Cost cost;
};

struct GraphSummary {
  std::vector<OpSummary> ops;  ///< By falling FLOPs, then bytes, then name.
  Cost total;
  int64_t input_bytes = 0;    ///< Of all inputs, those that an output updates counted once.
  int64_t updated_bytes = 0;  ///< Of the inputs that an output updates: the state of the graph.
};

/// Counts nodes, FLOPs and bytes; inputs and constants cost nothing.
GraphSummary summarize(const Graph& graph);

}  // namespace ridge
