// Norms of rows.
#include "ridge/graph/ops/norm.h"

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/graph_export.h"

namespace ridge::onnx {
namespace {

bool has_layer_norm(const Node&, int64_t opset) { return opset >= 17; }
bool has_rms_norm(const Node&, int64_t opset) { return opset >= 23; }

AttributeList of_rows(double eps) {
  return AttributeList().integer("axis", -1).number("epsilon", eps);
}

void layer_norm(NodeExport& n) {
  n.give(n.add(
      "LayerNormalization", {n.name(0), n.name(1), n.name(2)}, of_rows(n.op<LayerNorm>().eps)));
}

void rms_norm(NodeExport& n) {
  n.give(n.add("RMSNormalization", {n.name(0), n.name(1)}, of_rows(n.op<RmsNorm>().eps)));
}

constexpr ExportRow kNormRows[] = {
    {"layer_norm", layer_norm, has_layer_norm},
    {"rms_norm", rms_norm, has_rms_norm},
};

}  // namespace

std::span<const ExportRow> norm_exports() { return kNormRows; }

}  // namespace ridge::onnx
