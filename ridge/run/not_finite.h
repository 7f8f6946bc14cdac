// The first result of a planned graph that holds NaN or an infinity.
#pragma once

#include <string>

#include "ridge/run/launches.h"

namespace ridge {

/// Runs the launches, which are of `graph` and have their addresses, one by one, and returns the
/// site of the first whose result holds NaN, or an infinity that no constant of the graph put
/// there, with what it is; empty when none does. Of a fused node it is the op inside. UserError as
/// Launch::queue() has it.
std::string first_not_finite(const Graph& graph,
                             const Launches& launches,
                             Backend& backend,
                             Stream& stream);

}  // namespace ridge
