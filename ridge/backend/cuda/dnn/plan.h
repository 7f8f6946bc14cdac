// Ways of cuDNN to run a graph: its engines with their knobs, finished so that only a launch is
// left.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridge/backend/cuda/dnn/graph.h"

namespace ridge::cuda {

/// The limits of a plan.
struct DnnPlanRules {
  DnnHeuristicMode mode = DnnHeuristicMode::kA;
  /// Factors of f32 may be rounded to those of TF32; of 16 bits they go as they are either way.
  bool tensor_cores = true;
  size_t most = 2;  ///< Plans.
  int64_t most_workspace_bytes = int64_t{256} << 20;
};

/// One engine with its knobs.
struct DnnPlan {
  std::string name;                     ///< "eng12_k2=3_k13=1": so that a plan of ours can pin it.
  std::vector<DnnNumericalNote> notes;  ///< How the library says that it computes.
  DnnGraphRef graph;
  std::vector<std::unique_ptr<DnnDescriptor>> parts;  ///< Descriptors that the plan refers to, then
                                                      ///< its own.
  size_t workspace_bytes = 0;

  const DnnDescriptor& descriptor() const { return *parts.back(); }
};

using DnnPlanRef = std::shared_ptr<const DnnPlan>;

/// Plans for a graph, the library's best guess first; none where it has none. What gives other
/// bits in another run is left out, and so is what sums in 16 bits or rounds factors to fewer bits
/// than `rules` allow. An engine that is compiled is taken only where it comes first: that takes
/// a second. DnnError; of an engine that fails to be planned, only where there is no other.
std::vector<DnnPlanRef> make_dnn_plans(const Dnn& dnn,
                                       const DnnGraphRef& graph,
                                       const DnnPlanRules& rules);

}  // namespace ridge::cuda
