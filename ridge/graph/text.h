// Graphs as text, one node a line; what is printed parses back to the same graph.
//
//   ridge.graph/1 "mlp"
//   dim "B" = 64
//   %0 = input() {name="x", shape=[64,784], batch=0} : f32[64,784] @ "x"
//   %1 = input() {name="w", shape=[784,10]} : f32[784,10] @ "w"
//   %2 = matmul(%0, %1) : f32[64,10] @ "fc:matmul.0"
//   output "y" = %2
//
// Result i > 0 of a node is written %n.i. Fields that have their default are left out. `#` opens a
// comment.
#pragma once

#include <string>
#include <string_view>

#include "ridge/graph/graph.h"

namespace ridge {

/// The text of `graph`.
std::string print(const Graph& graph);

/// The line of one node.
std::string print(const Node& node);

/// The graph of `text`. UserError with line and column, and the site where one is given, for
/// anything wrong: syntax, unknown op or field (the nearest is named), shapes, dtypes, a use before
/// the definition, a cycle. `source` names the text in messages. Safe on hostile input.
Graph parse_graph(std::string_view text, std::string_view source = "graph");

}  // namespace ridge
