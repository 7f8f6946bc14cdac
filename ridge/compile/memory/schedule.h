// The order in which the nodes of a graph run.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// All nodes but inputs, in an order that is the graph's own but for one thing: a node that frees
/// at least as much memory as it takes runs as soon as its operands are there, such as the addition
/// of a gradient to its buffer. The reads of an updated input come before the node that makes its
/// new value where the graph's own order has them so. `roots` are byte_roots of the graph: reading
/// a reshape is reading what it was made of. Constants come right before their first reader.
std::vector<const Node*> schedule(const Graph& graph, const std::vector<Value>& roots);

}  // namespace ridge
