// Other orders of an entry's launches, tried because they may need less memory.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// Nodes that are launched, in the order of their launches.
using LaunchOrder = std::vector<const Node*>;

/// `plain` and variants of it that run the same nodes under the same dependencies (an updated
/// input is read before its new value is made): always the ready node that makes least more bytes
/// than it frees; and both with every node that makes more than it frees moved to right before its
/// first reader. `roots` are byte_roots of the graph.
std::vector<LaunchOrder> reorder(const Graph& graph,
                                 const std::vector<Value>& roots,
                                 const LaunchOrder& plain);

}  // namespace ridge
