// The interface of a pass. Each lies in a file of its own that opens with a picture of its rewrite;
// only pipeline.cc knows their order.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/base/semantic_class.h"
#include "ridge/compile/memory/arena.h"
#include "ridge/graph/graph.h"

namespace ridge {

/// Options of the pipeline and of its passes. A number for a pass has its place here alone.
struct PipelineOptions {
  /// Rewrites above this class are left out.
  SemanticClass highest = SemanticClass::kBitIdentical;
  /// Dtype that contractions compute in; kF32 leaves all as it is.
  DType precision = DType::kF32;
  /// Contractions of f32 may round their operands to TF32, on a backend that has it.
  bool tf32 = false;
  /// Nodes whose site begins with one of these keep their dtype.
  std::vector<std::string> pins = {};
  /// Parts that a loss is computed in; 1: as a whole.
  int64_t loss_chunks = 1;
  /// Bytes that the arena of a graph may take; 0: as many as it needs.
  int64_t arena_limit = 0;
  /// The arena options that decide how many bytes a graph needs; the caller fills them in where
  /// there is a limit. Without a limit nobody asks whether a pass takes more memory.
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

/// The backend and the options that a pass works for; both outlive it.
struct PassContext {
  Backend& backend;
  const PipelineOptions& options;
};

/// Changes the graph and says whether it did.
using RunPass = bool (*)(Graph&, PassContext&);

bool cancel_transposes(Graph& graph, PassContext& context);
bool recognize_norms(Graph& graph, PassContext& context);
bool recognize_activations(Graph& graph, PassContext& context);
bool recognize_attention(Graph& graph, PassContext& context);
bool chunk_loss(Graph& graph, PassContext& context);
bool lower_rows(Graph& graph, PassContext& context);
bool scatter_to_sums(Graph& graph, PassContext& context);
bool scale_products(Graph& graph, PassContext& context);
bool lower_unsupported(Graph& graph, PassContext& context);
bool place_casts(Graph& graph, PassContext& context);
bool lower_contractions(Graph& graph, PassContext& context);
bool pad_head(Graph& graph, PassContext& context);
bool fold_constants(Graph& graph, PassContext& context);
bool simplify(Graph& graph, PassContext& context);
bool fuse_norm_activations(Graph& graph, PassContext& context);
bool fuse_conv_norms(Graph& graph, PassContext& context);
bool rematerialize_casts(Graph& graph, PassContext& context);
bool fuse_loops(Graph& graph, PassContext& context);
bool fuse_products(Graph& graph, PassContext& context);
bool fuse_epilogues(Graph& graph, PassContext& context);
bool fuse_depthwise(Graph& graph, PassContext& context);
bool join_loops(Graph& graph, PassContext& context);
bool merge_common(Graph& graph, PassContext& context);
bool remove_dead(Graph& graph, PassContext& context);
bool recompute(Graph& graph, PassContext& context);

}  // namespace ridge
