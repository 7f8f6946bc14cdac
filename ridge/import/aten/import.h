// Graphs of ATen operators as graphs of ours.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/model_source.h"
#include "ridge/graph/program_graphs.h"
#include "ridge/import/aten/aten_graph.h"

namespace ridge::aten {

/// A node that cannot be imported, and why.
struct Refusal {
  size_t node = 0;
  std::string reason;
};

/// The nodes that import_graph() would refuse, each looked at by itself: of one that is refused the
/// results count as given.
std::vector<Refusal> refusals(const AtenGraph& graph);

/// The names that input and output `number` have in the graph.
std::string input_name(size_t number);
std::string output_name(size_t number);

struct ImportedGraph {
  ProgramGraphs program;
  /// By output: its axes from the outermost to the innermost, as it lies in memory.
  std::vector<std::vector<int64_t>> orders;
};

/// A program of one entry, which reads a memory of `lying()` for each input, and makes one for each
/// output. Constants lie at their addresses, by number of the input (null for all others), and must
/// stay there; they are entries of the state. UserError, with the node, where one cannot be
/// imported.
ImportedGraph import_graph(const AtenGraph& graph, std::span<const void* const> constants);

}  // namespace ridge::aten
