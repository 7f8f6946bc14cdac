#include "ridge/graph/summary.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace ridge {

GraphSummary summarize(const Graph& graph) {
  GraphSummary summary;
  std::map<std::string, OpSummary, std::less<>> by_op;
  for (const auto& node : graph.nodes()) {
    OpSummary& op = by_op[std::string(node->op->name())];
    op.op = node->op->name();
    ++op.nodes;
    if (node->inputs.empty()) continue;
    const Cost cost = node->op->cost(node->input_types(), node->outputs);
    op.cost.flops += cost.flops;
    op.cost.bytes += cost.bytes;
    summary.total.flops += cost.flops;
    summary.total.bytes += cost.bytes;
  }
  for (const Node* input : graph.inputs()) summary.input_bytes += input->outputs[0].bytes();
  for (const Output& output : graph.outputs())
    if (!output.updates.empty()) summary.updated_bytes += output.value.type().bytes();
  for (auto& [name, op] : by_op) summary.ops.push_back(std::move(op));
  std::sort(summary.ops.begin(), summary.ops.end(), [](const OpSummary& a, const OpSummary& b) {
    return std::tuple(-a.cost.flops, -a.cost.bytes, a.op) <
           std::tuple(-b.cost.flops, -b.cost.bytes, b.op);
  });
  return summary;
}

}  // namespace ridge
