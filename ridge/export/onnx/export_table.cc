#include "ridge/export/onnx/export_table.h"

#include <map>

namespace ridge::onnx {

const ExportRow* find_export(const Node& node, int64_t opset) {
  static const std::map<std::string_view, ExportRow> table = [] {
    std::map<std::string_view, ExportRow> by_op;
    for (const auto& family : {elementwise_exports(),
                               shape_exports(),
                               reduce_exports(),
                               product_exports(),
                               image_exports(),
                               norm_exports()})
      for (const ExportRow& row : family) by_op.emplace(row.op, row);
    return by_op;
  }();
  const auto found = table.find(node.op->name());
  if (found == table.end()) return nullptr;
  const ExportRow& row = found->second;
  return row.accepts == nullptr || row.accepts(node, opset) ? &row : nullptr;
}

}  // namespace ridge::onnx
