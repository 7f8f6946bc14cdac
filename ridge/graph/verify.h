// The rules that a legal graph obeys, as code. Passes are checked by it.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// Throws InternalError, with the printed node, unless: every node reads earlier nodes of this
/// graph; its arity, dtypes and types are what its op infers; ids count up; sites are unique but
/// for clones of one op; input names are unique; outputs name values of the graph, each once; and
/// an updated input is of the output's type and updated once.
void verify(const Graph& graph);

}  // namespace ridge
