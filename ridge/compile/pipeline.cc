#include "ridge/compile/pipeline.h"

#include <algorithm>

#include "ridge/base/clock.h"
#include "ridge/base/trace/trace.h"
#include "ridge/graph/verify.h"

namespace ridge {

namespace {

// They come first, while a graph is as its importer made it, and are left out where sums must keep
// their order.
std::vector<PassInfo> pattern_passes() {
  return {
      {"cancel_transposes",
       SemanticClass::kReassociation,
       cancel_transposes,
       "before norms are looked for, which are over the last axis"},
      {"recognize_norms",
       SemanticClass::kReassociation,
       recognize_norms,
       "before any pass that takes plain ops into loops, or norms apart"},
      {"recognize_activations",
       SemanticClass::kReassociation,
       recognize_activations,
       "before the rules, which turn quotients by powers of two into products"},
      {"fuse_norm_activations",
       SemanticClass::kReassociation,
       fuse_norm_activations,
       "before the loops, which take activations; sums keep their order, but a zero may change its "
       "sign"},
      {"recognize_attention",
       SemanticClass::kReassociation,
       recognize_attention,
       "before softmax is written as plain ops"},
  };
}

std::vector<PassInfo> other_passes() {
  constexpr auto kSame = SemanticClass::kBitIdentical;
  return {
      {"chunk_loss",
       SemanticClass::kReassociation,
       chunk_loss,
       "asked for by a number; early, while a loss and its gradient are few ops that know rows",
       true},
      {"lower_rows",
       SemanticClass::kReassociation,
       lower_rows,
       "early, and always: a graph that is not fused computes what a fused one does",
       true},
      {"scatter_to_sums",
       SemanticClass::kReassociation,
       scatter_to_sums,
       "always, as it adds in another order",
       true},
      {"lower_unsupported",
       kSame,
       lower_unsupported,
       "before the rules: they simplify the plain ops that it makes",
       true},
      {"remove_dead",
       kSame,
       remove_dead,
       "autodiff leaves gradients that nobody asked for: less work for the rest"},
      {"fold_constants",
       kSame,
       fold_constants,
       "before the rules, which look for operands that are constants"},
      {"simplify", kSame, simplify, "before merging: several spellings become one"},
      {"fold_simplified",
       kSame,
       fold_constants,
       "a rule that leaves a constant of its node makes readers of constants"},
      {"scale_products", kSame, scale_products, "before loops take what is made of sums"},
      {"place_casts",
       SemanticClass::kPrecision,
       place_casts,
       "after the rules, which move transposes into contractions"},
      {"lower_contractions",
       kSame,
       lower_contractions,
       "right after the casts, which decide what a contraction computes in",
       true},
      {"simplify_casts", kSame, simplify, "two contractions in a row: their casts undo each other"},
      {"pad_head",
       SemanticClass::kPrecision,
       pad_head,
       "after the casts, which decide what products read; before merging, which makes one copy of "
       "the padded weight"},
      {"merge_common",
       kSame,
       merge_common,
       "after the rules, which make unequal spellings equal, and after the casts"},
      {"remove_dead_rewritten",
       kSame,
       remove_dead,
       "folding and rules leave nodes behind that nobody reads, and nobody should fuse"},
      {"fuse_conv_norms",
       kSame,
       fuse_conv_norms,
       "after the casts, which decide what a convolution computes in; before loops take its "
       "readers"},
      {"remake_wide", kSame, rematerialize_casts, "right before the loops: merging would undo it"},
      {"remove_dead_remade",
       kSame,
       remove_dead,
       "a value that all its readers make again is made nowhere else"},
      {"fuse_loops",
       kSame,
       fuse_loops,
       "after all that looks at single ops: no pass looks into a fused node"},
      {"remove_dead_last",
       kSame,
       remove_dead,
       "loops make constants and broadcasts for themselves"},
      {"fuse_products",
       SemanticClass::kPrecision,
       fuse_products,
       "after fusion, which says what the loops are; a loop that joins a product joins no list"},
      {"fuse_epilogues",
       kSame,
       fuse_epilogues,
       "after fusion, which says what the loops are; a loop that joins a product joins no list"},
      {"fuse_depthwise",
       kSame,
       fuse_depthwise,
       "after the epilogues, which say what convolutions end with"},
      {"join_loops",
       kSame,
       join_loops,
       "after fusion, which says what the loops are, and on a graph of which all nodes run"},
      {"recompute",
       kSame,
       recompute,
       "last: it weighs what is launched, and nothing may merge what it makes again"},
  };
}

void check_names(const std::vector<std::string>& off) {
  std::vector<std::string> known{"all"};
  for (const PassInfo& pass : pipeline()) known.emplace_back(pass.name);
  for (const std::string& name : off)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError(fmt::format("unknown pass '{}'", name), did_you_mean(name, known));
}

bool is_on(const PassInfo& pass, const PipelineOptions& options) {
  if (pass.required) return true;
  // Precision is asked for by name, not by class.
  if (pass.semantic_class > options.highest && pass.semantic_class != SemanticClass::kPrecision)
    return false;
  return std::none_of(options.off.begin(), options.off.end(), [&](const std::string& name) {
    return name == pass.name || name == "all";
  });
}

}  // namespace

const std::vector<PassInfo>& pipeline() {
  static const std::vector<PassInfo> passes = [] {
    std::vector<PassInfo> all = pattern_passes();
    for (const PassInfo& pass : other_passes()) all.push_back(pass);
    return all;
  }();
  return passes;
}

std::vector<PassReport> run_pipeline(Graph& graph,
                                     Backend& backend,
                                     const PipelineOptions& options) {
  check_names(options.off);
  PassContext context{.backend = backend, .options = options};
  std::vector<PassReport> reports;
  for (const PassInfo& pass : pipeline()) {
    if (!is_on(pass, options)) continue;
    const TraceScope scope(pass.name.data(), "pass");
    PassReport report{.name = pass.name, .nodes_before = graph.nodes().size()};
    const auto chosen = [&] { return options.choosing_ns == nullptr ? 0 : *options.choosing_ns; };
    const int64_t start = now_ns(), chosen_before = chosen();
    report.changed = pass.run(graph, context);
    const int64_t choosing = chosen() - chosen_before;
    report.seconds = static_cast<double>(now_ns() - start - choosing) * 1e-9;
    report.choosing_seconds = static_cast<double>(choosing) * 1e-9;
    report.nodes_after = graph.nodes().size();
    reports.push_back(report);
    if (options.verify_each) verify(graph);
    if (options.dump && report.changed) options.dump(pass.name, graph);
  }
  verify(graph);
  return reports;
}

}  // namespace ridge
