// Makes one node of a pointwise convolution with its loop and of the depthwise one with its loop
// that alone reads it, where the backend has a kernel for both: it makes some rows of the image
// between them at a time, and never writes the whole.
//
//   y = fused_conv2d(x, w, bias)   relu(... + bias)          (1 x 1)
//   z = fused_conv2d(y, v, shift)  relu(... + shift)         (depthwise)
//                           ->     z = pointwise_depthwise(x, w, v, bias, shift)
#include <map>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/pointwise_depthwise.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// A depthwise convolution, and the pointwise one before it.
struct Pair {
  const Node* pointwise;
  std::shared_ptr<const PointwiseDepthwise> op;
};

bool is_pointwise(const Node& node) {
  const auto& conv = node.op_as<FusedConv2d>().product;
  const Shape& w = node.inputs[1].shape();
  const std::vector<int64_t> ones{1, 1}, zeros{0, 0, 0, 0};
  return conv.groups == 1 && !conv.tf32 && w[0] == 1 && w[1] == 1 && conv.window.stride == ones &&
         conv.window.padding == zeros;
}

bool is_depthwise(const Node& node) {
  const auto& conv = node.op_as<FusedConv2d>().product;
  const Shape& w = node.inputs[1].shape();
  return !conv.tf32 && w[2] == 1 && w[3] == conv.groups && node.inputs[0].shape()[3] == w[3];
}

std::vector<Value> inputs_of(const std::vector<Value>& pointwise,
                             const std::vector<Value>& depthwise) {
  std::vector<Value> inputs{pointwise[0], pointwise[1], depthwise[1]};
  inputs.insert(inputs.end(), pointwise.begin() + 2, pointwise.end());
  inputs.insert(inputs.end(), depthwise.begin() + 2, depthwise.end());
  return inputs;
}

std::shared_ptr<const PointwiseDepthwise> joint_op(const Node& pointwise, const Node& depthwise) {
  auto op = std::make_shared<PointwiseDepthwise>();
  op->window = depthwise.op_as<FusedConv2d>().product.window;
  op->first.body = pointwise.op_as<FusedConv2d>().loop.body;
  op->second.body = depthwise.op_as<FusedConv2d>().loop.body;
  op->first_operands = static_cast<int64_t>(pointwise.inputs.size()) - 2;
  return op;
}

std::map<const Node*, Pair> find_pairs(const Graph& graph, Backend& backend) {
  std::map<const Node*, int> readers;
  for (const auto& node : graph.nodes())
    for (const Value& value : node->inputs) ++readers[value.node];
  for (const Output& output : graph.outputs()) ++readers[output.value.node];
  std::map<const Node*, Pair> pairs;
  for (const auto& node : graph.nodes()) {
    if (!node->is<FusedConv2d>() || !is_depthwise(*node) || node->outputs.size() != 1) continue;
    const Node& before = *node->inputs[0].node;
    if (!before.is<FusedConv2d>() || !is_pointwise(before) || before.outputs.size() != 1 ||
        readers[&before] != 1 ||
        before.outputs[0] != before.op_as<FusedConv2d>().product_type(before.input_types()))
      continue;
    auto op = joint_op(before, *node);
    if (has_kernel(op, inputs_of(before.inputs, node->inputs), backend))
      pairs.emplace(node.get(), Pair{&before, std::move(op)});
  }
  return pairs;
}

}  // namespace

bool fuse_depthwise(Graph& graph, PassContext& context) {
  const std::map<const Node*, Pair> pairs = find_pairs(graph, context.backend);
  if (pairs.empty()) return false;
  std::map<const Node*, std::vector<Value>> inputs;  // of a pointwise node, in the new graph
  for (const auto& [depthwise, pair] : pairs) inputs[pair.pointwise];
  Rewrite rewrite(graph);
  for (const auto& node : graph.nodes()) {
    if (const auto found = inputs.find(node.get()); found != inputs.end()) {
      found->second = rewrite.mapped_inputs(*node);
      continue;
    }
    const auto pair = pairs.find(node.get());
    if (pair == pairs.end()) {
      rewrite.copy(*node);
      continue;
    }
    std::vector<Value> others{Value{}};
    for (size_t i = 1; i < node->inputs.size(); ++i)
      others.push_back(rewrite.mapped(node->inputs[i]));
    Node& made = rewrite.to().add(
        pair->second.op, inputs_of(inputs.at(pair->second.pointwise), others), node->site);
    rewrite.replace(*node, {{&made, 0}});
  }
  graph = rewrite.finish();
  return true;
}

}  // namespace ridge
