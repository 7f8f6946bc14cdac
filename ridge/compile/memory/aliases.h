// Which values share bytes, and which updates may be made in place: what schedule and plan ask.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// For each node, the value whose bytes its first result has: that of a chain of reshapes,
/// barriers and slices from the first byte on, of three quarters or more, is where the chain
/// begins, and may have more bytes. With `share` off, each of them is a copy.
std::vector<Value> byte_roots(const Graph& graph, bool share);

/// Rewrites the graph so that every new value of an updated input can be made right in the input's
/// buffer: where an updated input is still read under its
/// old value, or its new value is another input or the new value of two inputs, the value is copied
/// after all reads. With `share` off every update is such a copy.
void separate_updates(Graph& graph, bool share);

}  // namespace ridge
