// The passes in their order, run one by one with timing and checks.
#pragma once

#include <functional>
#include <string>
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

struct PipelineOptions {
  SemanticClass highest = SemanticClass::kBitIdentical;
  DType precision = DType::kF32;
  bool tf32 = false;
  std::vector<std::string> pins = {};
  /// These have the meaning that they have in PassContext.
  int64_t loss_chunks = 1;
  int64_t arena_limit = 0;
  ArenaOptions arena = {};
  /// Names of passes to leave out; "all" leaves out every one that is not required.
  std::vector<std::string> off = {};
  /// The time so far, in ns, that choosing kernels took, which is no pass's; null: none is chosen.
  const int64_t* choosing_ns = nullptr;
  /// Check the graph after every pass; else once, at the end.
  bool verify_each = false;
  /// Called with the name of a pass that changed the graph, and the graph after it.
  std::function<void(std::string_view, const Graph&)> dump = nullptr;
};

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
