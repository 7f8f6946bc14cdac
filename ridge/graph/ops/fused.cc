#include "ridge/graph/ops/fused.h"

#include <algorithm>

#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"

namespace ridge {

bool is_fusible(const Node& node) {
  return node.op->traits().elementwise && node.outputs.size() == 1 && !node.is<Fused>();
}

namespace {

void check_body_node(const Node& node, const Shape& domain) {
  if (node.is<Input>()) return;
  const auto refuse = [&](std::string_view why) {
    throw UserError(fmt::format("[fused] node '{}' of the body {}", node.site.name, why));
  };
  if (node.outputs.size() != 1 || node.outputs[0].shape != domain)
    refuse("is not of the shape of the results");
  if (node.is<Constant>()) {
    if (!node.op_as<Constant>().is_splat()) refuse("is a constant of several values");
  } else if (node.is<Broadcast>()) {
    if (!node.inputs[0].node->is<Input>()) refuse("broadcasts what is no input of the body");
  } else if (is_fusible(node)) {
    for (const Value& input : node.inputs)
      if (input.shape() != domain) refuse("reads a value that is not of the shape of the results");
  } else {
    refuse("is not elementwise");
  }
}

}  // namespace

std::vector<TensorType> Fused::infer(std::span<const TensorType> inputs) const {
  const Graph graph = parse_graph(body, "fused body");
  check(!graph.outputs().empty(), "[fused] the body has no outputs");
  const Shape& domain = graph.outputs()[0].value.shape();
  for (const auto& node : graph.nodes()) check_body_node(*node, domain);
  const std::vector<Node*> body_inputs = graph.inputs();
  check(body_inputs.size() == inputs.size(),
        "[fused] wrong number of inputs; got {}, the body has {}",
        inputs.size(),
        body_inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node* input = graph.find_input(fmt::format("{}", i));
    check(input != nullptr, "[fused] the body has no input '{}'", i);
    check(input->outputs[0] == inputs[i],
          "[fused] input {} has another type; got {}, the body has {}",
          i,
          to_string(inputs[i]),
          to_string(input->outputs[0]));
  }
  std::vector<TensorType> types;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Output& output = graph.outputs()[i];
    check(output.name == fmt::format("{}", i) && output.updates.empty(),
          "[fused] output {} of the body must be named '{}'",
          i,
          i);
    check(output.value.shape() == domain && !output.value.node->is<Input>(),
          "[fused] output {} of the body is not computed in the shape of output 0",
          i);
    types.push_back(output.value.type());
  }
  return types;
}

std::vector<Value> Fused::expand(std::span<const Value> inputs) const {
  const Graph graph = parse_graph(body, "fused body");
  std::vector<Value> values(graph.nodes().size());
  Graph& to = inputs[0].graph();
  for (const auto& node : graph.nodes()) {
    const auto id = static_cast<size_t>(node->id);
    if (node->is<Input>()) {
      const std::string& name = node->op_as<Input>().input_name;
      values[id] = inputs[static_cast<size_t>(std::stoul(name))];
      continue;
    }
    std::vector<Value> operands;
    for (const Value& input : node->inputs)
      operands.push_back(values[static_cast<size_t>(input.node->id)]);
    values[id] = {&to.add(node->op, std::move(operands)), 0};
  }
  std::vector<Value> results;
  for (const Output& output : graph.outputs())
    results.push_back(values[static_cast<size_t>(output.value.node->id)]);
  return results;
}

Cost Fused::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  const Graph graph = parse_graph(body, "fused body");
  Cost cost{.flops = 0, .bytes = total_bytes(inputs) + total_bytes(outputs)};
  for (const auto& node : graph.nodes())
    if (is_fusible(*node)) cost.flops += node->op->cost(node->input_types(), node->outputs).flops;
  return cost;
}

std::vector<BatchFlow> Fused::batch_flow(const BatchFlowContext& c) const {
  const bool depends = std::any_of(
      c.flows.begin(), c.flows.end(), [](const BatchFlow& flow) { return !flow.is_none(); });
  // Nothing asks after fusion; the body would have to be followed node by node.
  return std::vector<BatchFlow>(
      c.outputs.size(),
      depends ? BatchFlow::mixed("a fused node is not followed") : BatchFlow::none());
}

Node& fused(Graph& graph, const Graph& body, std::vector<Value> inputs, Site site) {
  auto op = std::make_shared<Fused>();
  op->body = print(body);
  return graph.add(std::move(op), std::move(inputs), std::move(site));
}

void register_fused(OpRegistry& r) { r.add<Fused>(); }

}  // namespace ridge
