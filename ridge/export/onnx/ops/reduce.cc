// Reductions, and softmax.
#include "ridge/graph/ops/reduce.h"

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/graph_export.h"

namespace ridge::onnx {
namespace {

/// The first version in which the operator takes its axes as an input.
struct ReduceRow {
  std::string_view onnx;
  int64_t axes_input;
};

void give_reduced(NodeExport& n, const ReduceRow& row, std::vector<int64_t> axes, bool keepdims) {
  // Over height and width alone the order of the axes that stay is the same.
  const bool as_image = n.to().is_image(n.in(0)) && axes == std::vector<int64_t>{1, 2};
  if (as_image) axes = {2, 3};
  std::vector<std::string> inputs{as_image ? n.to().image(n.in(0)) : n.name(0)};
  AttributeList attributes;
  attributes.integer("keepdims", keepdims ? 1 : 0);
  if (n.to().opset() >= row.axes_input)
    inputs.push_back(n.to().integers(axes));
  else
    attributes.integers("axes", axes);
  const std::string result = n.add(row.onnx, std::move(inputs), attributes);
  as_image&& keepdims ? n.give_image(result) : n.give(result);
}

template <typename T>
void give_reduction(NodeExport& n, const ReduceRow& row) {
  give_reduced(n, row, n.op<T>().axes, n.op<T>().keepdims);
}

void reduce_sum(NodeExport& n) { give_reduction<ReduceSum>(n, {"ReduceSum", 13}); }
void reduce_mean(NodeExport& n) { give_reduction<ReduceMean>(n, {"ReduceMean", 18}); }
void reduce_max(NodeExport& n) { give_reduction<ReduceMax>(n, {"ReduceMax", 18}); }

bool compares_all(const Node& node, int64_t) { return node.op_as<ArgMax>().limit == 0; }

void argmax(NodeExport& n) {
  const AttributeList attributes =
      AttributeList().integer("axis", n.op<ArgMax>().axis).integer("keepdims", 0);
  n.give(n.add("ArgMax", {n.name(0)}, attributes));
}

void softmax(NodeExport& n) {
  n.give(n.add("Softmax", {n.name(0)}, AttributeList().integer("axis", -1)));
}

void log_softmax(NodeExport& n) {
  n.give(n.add("LogSoftmax", {n.name(0)}, AttributeList().integer("axis", -1)));
}

constexpr ExportRow kReduceRows[] = {
    {"argmax", argmax, compares_all},
    {"log_softmax", log_softmax},
    {"reduce_max", reduce_max},
    {"reduce_mean", reduce_mean},
    {"reduce_sum", reduce_sum},
    {"softmax", softmax},
};

}  // namespace

std::span<const ExportRow> reduce_exports() { return kReduceRows; }

}  // namespace ridge::onnx
