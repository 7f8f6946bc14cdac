// The table of Ridge's ops as ONNX's operators, the mirror of import/onnx/op_table.h: one row an
// op, one file a family (ops/). An op without a row goes as its plain form, where it has one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge::onnx {

class NodeExport;

/// Versions of ONNX's operators that are written.
inline constexpr int64_t kOldestWritten = 13;
inline constexpr int64_t kNewestWritten = 23;

struct ExportRow {
  std::string_view op;  ///< OpTraits::name.
  void (*write)(NodeExport& node);
  /// If it is not null, whether these fields can be said in that version.
  bool (*accepts)(const Node& node, int64_t opset) = nullptr;
};

/// The row of the node's op, or null where there is none or it does not accept the node.
const ExportRow* find_export(const Node& node, int64_t opset);

// Families.
std::span<const ExportRow> elementwise_exports();
std::span<const ExportRow> shape_exports();
std::span<const ExportRow> reduce_exports();
std::span<const ExportRow> product_exports();
std::span<const ExportRow> image_exports();
std::span<const ExportRow> norm_exports();

}  // namespace ridge::onnx
