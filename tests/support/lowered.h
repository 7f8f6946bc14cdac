// Graphs as a device runs them.
#pragma once

#include "ridge/compile/pass.h"

namespace ridge::test {

/// The graph with ops that `backend` has no kernel for written as the plain ops that they carry, as
/// the pipeline does before a program runs.
inline Graph lowered(const Graph& graph, Backend& backend) {
  Graph made = graph.clone();
  const PipelineOptions options;
  PassContext context{backend, options};
  lower_unsupported(made, context);
  return made;
}

}  // namespace ridge::test
