// Joins the gradient of a batch norm with those of the convolution before it, where nobody else
// reads what passes between them: a large image that is then never written.
//
//   dz, dg, db = batch_norm_grad(z, ..., dy)
//   dx = conv2d_grad_input(dz, w)               ->   dx, dw, dg, db =
//   dw = conv2d_grad_weight(x, dz)                       conv2d_norm_grad(x, w, z, ..., dy)
#include <algorithm>
#include <map>

#include "ridge/compile/pass.h"
#include "ridge/compile/rewrite.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv_norm.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

struct Group {
  const Node* norm;
  const Node* input_gradient;
  const Node* weight_gradient;

  std::vector<Value> inputs() const {
    std::vector<Value> inputs{weight_gradient->inputs[0], input_gradient->inputs[1]};
    inputs.insert(inputs.end(), norm->inputs.begin(), norm->inputs.end());
    return inputs;
  }
  std::shared_ptr<Conv2dNormGrad> op() const {
    auto op = std::make_shared<Conv2dNormGrad>();
    const auto& conv = input_gradient->op_as<Conv2dGradInput>();
    op->window = conv.window;
    op->groups = conv.groups;
    op->eps = norm->op_as<BatchNormGrad>().eps;
    op->activation = norm->op_as<BatchNormGrad>().activation;
    return op;
  }
};

bool are_of_one_convolution(const Node& input_gradient, const Node& weight_gradient) {
  const auto& a = input_gradient.op_as<Conv2dGradInput>();
  const auto& b = weight_gradient.op_as<Conv2dGradWeight>();
  return a.window.stride == b.window.stride && a.window.padding == b.window.padding &&
         a.window.dilation == b.window.dilation && a.groups == b.groups &&
         input_gradient.outputs[0] == weight_gradient.inputs[0].type() &&
         input_gradient.inputs[1].type() == weight_gradient.outputs[0];
}

// The readers of the first result of each batch_norm_grad; an output of the graph counts as null.
std::map<const Node*, std::vector<const Node*>> readers_of_gradients(const Graph& graph) {
  std::map<const Node*, std::vector<const Node*>> readers;
  const auto note = [&](const Value& value, const Node* reader) {
    if (value.index == 0 && value.node->is<BatchNormGrad>()) readers[value.node].push_back(reader);
  };
  for (const auto& node : graph.nodes())
    for (const Value& input : node->inputs) note(input, node.get());
  for (const Output& output : graph.outputs()) note(output.value, nullptr);
  return readers;
}

bool has_kernel(const Group& group, Backend& backend) {
  Graph probe("probe");
  std::vector<Value> inputs;
  for (const Value& value : group.inputs())
    inputs.push_back(input(probe, std::to_string(inputs.size()), value.type()));
  const auto choices = backend.candidates(probe.add(group.op(), inputs));
  return !choices.empty() && choices.front().name != kExpandedChoice;
}

std::vector<Group> find_groups(const Graph& graph, Backend& backend) {
  std::vector<Group> groups;
  for (const auto& [norm, readers] : readers_of_gradients(graph)) {
    if (readers.size() != 2 || readers[0] == nullptr || readers[1] == nullptr) continue;
    const bool input_first = readers[0]->is<Conv2dGradInput>();
    const Group group{norm, readers[input_first ? 0 : 1], readers[input_first ? 1 : 0]};
    if (!group.input_gradient->is<Conv2dGradInput>() ||
        !group.weight_gradient->is<Conv2dGradWeight>())
      continue;
    // The fused node takes the place of the norm.
    const int place = norm->id;
    if (group.weight_gradient->inputs[0].node->id < place &&
        group.input_gradient->inputs[1].node->id < place &&
        group.input_gradient->inputs[0] == Value{const_cast<Node*>(norm), 0} &&
        group.weight_gradient->inputs[1] == Value{const_cast<Node*>(norm), 0} &&
        are_of_one_convolution(*group.input_gradient, *group.weight_gradient) &&
        has_kernel(group, backend))
      groups.push_back(group);
  }
  return groups;
}

}  // namespace

bool fuse_conv_norms(Graph& graph, PassContext& context) {
  const std::vector<Group> groups = find_groups(graph, context.backend);
  if (groups.empty()) return false;
  std::map<const Node*, const Group*> of_norm;
  std::vector<bool> gone(graph.nodes().size());
  for (const Group& group : groups) {
    of_norm[group.norm] = &group;
    gone[static_cast<size_t>(group.input_gradient->id)] = true;
    gone[static_cast<size_t>(group.weight_gradient->id)] = true;
  }
  Rewrite rewrite(graph);
  for (const auto& node : graph.nodes()) {
    if (gone[static_cast<size_t>(node->id)]) continue;
    const auto found = of_norm.find(node.get());
    if (found == of_norm.end()) {
      rewrite.copy(*node);
      continue;
    }
    const Group& group = *found->second;
    std::vector<Value> inputs;
    for (const Value& input : group.inputs()) inputs.push_back(rewrite.mapped(input));
    Node& fused = rewrite.to().add(group.op(), std::move(inputs), node->site);
    rewrite.replace(*group.input_gradient, {{&fused, 0}});
    rewrite.replace(*group.weight_gradient, {{&fused, 1}});
    // Nobody reads the first result any more, but a rewrite names all of them.
    rewrite.replace(*group.norm, {fused.inputs.back(), {&fused, 2}, {&fused, 3}});
  }
  graph = rewrite.finish();
  return true;
}

}  // namespace ridge
