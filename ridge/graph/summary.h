// The cost of a graph, by op.
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
  int64_t input_bytes = 0;    ///< Bytes of all inputs, those that an output updates counted once.
  int64_t updated_bytes = 0;  ///< Bytes of the graph's state: inputs that an output updates.
};

/// Counts nodes, FLOPs and bytes; inputs and constants cost nothing.
GraphSummary summarize(const Graph& graph);

}  // namespace ridge
