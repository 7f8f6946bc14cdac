// A text of the computation of a node, without its name.
#pragma once

#include <string>

#include "ridge/graph/graph.h"

namespace ridge {

/// Op, fields, types of operands and results: equal for nodes that one kernel serves. Sites do not
/// count, those within a fused body neither.
std::string signature(const Node& node);

}  // namespace ridge
