#include "ridge/export/onnx/onnx_export.h"

#include <algorithm>

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/graph_export.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

using onnx::find_export;

// Takes nodes without a row apart, where they have a plain form, until there is none.
Graph with_plain_forms(const Graph& from, int64_t opset) {
  Graph graph = from.clone();
  for (bool changed = true; changed;) {
    changed = false;
    Rewrite rewrite(graph);
    for (const auto& node : graph.nodes()) {
      if (find_export(*node, opset) != nullptr || !node->op->has_plain_form()) {
        rewrite.copy(*node);
        continue;
      }
      const SiteScope scope(rewrite.to(), node->site.name + "/plain", SiteScope::Path::kAbsolute);
      rewrite.replace(*node, node->op->expand(rewrite.mapped_inputs(*node)));
      changed = true;
    }
    graph = rewrite.finish();
  }
  return graph;
}

// UserError that lists the ops of which an output needs one that has no row.
void check_ops(const Graph& graph, const std::vector<bool>& live, int64_t opset) {
  constexpr size_t kMostSites = 3;
  std::map<std::string, std::vector<std::string>> refused;
  for (const auto& node : graph.nodes())
    if (live[static_cast<size_t>(node->id)] && find_export(*node, opset) == nullptr)
      refused[std::string(node->op->name())].push_back(node->site.name);
  if (refused.empty()) return;
  std::string list;
  for (const auto& [op, sites] : refused) {
    list += fmt::format("\n  {} x {} ({}", sites.size(), op, sites[0]);
    for (size_t i = 1; i < std::min(sites.size(), kMostSites); ++i) list += ", " + sites[i];
    if (sites.size() > kMostSites) list += fmt::format(" and {} more", sites.size() - kMostSites);
    list += ")";
  }
  throw UserError(
      fmt::format("ONNX's operators of version {} have no counterpart of:{}", opset, list));
}

// Dimensions that have one size as that.
std::vector<DataSpec> with_sizes(std::vector<DataSpec> specs, const Binding& fixed) {
  for (DataSpec& spec : specs)
    for (Dim& dim : spec.dims)
      if (const auto size = fixed.find(dim.name); size != fixed.end()) dim = Dim(size->second);
  return specs;
}

}  // namespace

OnnxExportResult export_onnx(const ModelSource& source,
                             const SafetensorsView& weights,
                             const std::map<std::string, std::string>& metadata,
                             const std::filesystem::path& path,
                             const OnnxExportOptions& options) {
  check(options.opset >= onnx::kOldestWritten && options.opset <= onnx::kNewestWritten,
        "ONNX's operators of version {} are not written; those of {} to {} are",
        options.opset,
        onnx::kOldestWritten,
        onnx::kNewestWritten);
  const onnx::SizedGraph sized(source, options.sizes, [&](const Graph& graph) {
    return with_plain_forms(graph, options.opset);
  });
  const std::vector<bool> live = live_nodes(sized.graph());
  check_ops(sized.graph(), live, options.opset);
  OnnxExportResult result{.inputs = with_sizes(source.inputs(), sized.fixed()),
                          .outputs = with_sizes(source.outputs(), sized.fixed())};
  onnx::GraphExport to(sized, result.inputs, weights, options.opset);
  for (const auto& node : sized.graph().nodes()) {
    if (!live[static_cast<size_t>(node->id)]) continue;
    onnx::NodeExport each(to, *node);
    find_export(*node, options.opset)->write(each);
  }
  onnx::WrittenModel model = to.finish(result.inputs, result.outputs);
  model.metadata = metadata;
  result.nodes = std::ssize(model.nodes);
  for (const auto& [name, tensor] : model.tensors)
    result.weight_bytes += std::ssize(tensor.bytes());
  result.data_file = onnx::write_model(model, path, options.most_bytes_inside);
  return result;
}

}  // namespace ridge
