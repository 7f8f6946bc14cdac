// The passes in their order, run one by one with timing and checks.
#pragma once

#include <string_view>
#include <vector>

#include "ridge/compile/pass.h"

namespace ridge {

struct PassInfo {
  std::string_view name;
  SemanticClass semantic_class;
  RunPass run;
  std::string_view why_here;
  /// Without it the graph may not run on the device: it cannot be switched off.
  bool required = false;
};

/// The pipeline, in order.
const std::vector<PassInfo>& pipeline();

/// The report of one pass.
struct PassReport {
  std::string_view name;
  bool changed = false;
  size_t nodes_before = 0, nodes_after = 0;
  double seconds = 0;           ///< Without choosing kernels for what it asked about.
  double choosing_seconds = 0;  ///< And that.
};

/// Runs the pipeline over `graph`. UserError for an unknown name in `off` (the nearest is named),
/// or when the backend cannot run the graph.
std::vector<PassReport> run_pipeline(Graph& graph,
                                     Backend& backend,
                                     const PipelineOptions& options);

}  // namespace ridge
