#include "ridge/run/not_finite.h"

#include <algorithm>
#include <cmath>

#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"

namespace ridge {
namespace {

// The first element that is NaN, or infinite where that is no intended mask; -1 for none.
int64_t first_bad_element(const Tensor& tensor, bool may_be_infinite) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = tensor.at(i);
    if (std::isnan(x) || (std::isinf(x) && !may_be_infinite)) return i;
  }
  return -1;
}

bool has_infinity(const Constant& constant) {
  return std::any_of(
      constant.values.begin(), constant.values.end(), [](double x) { return std::isinf(x); });
}

// For each node, whether infinities in it may be meant: it is made from a constant infinity.
std::vector<bool> made_from_infinity(const Graph& graph) {
  std::vector<bool> made(graph.nodes().size());
  for (const auto& node : graph.nodes()) {
    bool infinite = node->is<Constant>() && has_infinity(node->op_as<Constant>());
    for (const Value& input : node->inputs)
      infinite = infinite || made[static_cast<size_t>(input.node->id)];
    made[static_cast<size_t>(node->id)] = infinite;
  }
  return made;
}

std::string describe_bad(const Node& node, const Tensor& tensor, bool may_be_infinite) {
  if (!is_float(tensor.type().dtype)) return {};
  const int64_t bad = first_bad_element(tensor, may_be_infinite);
  if (bad < 0) return {};
  return fmt::format(
      "{} ({} at element {} of {})", node.site.name, tensor.at(bad), bad, to_string(tensor.type()));
}

// Which op of a fused node it was, on the data that the node had.
std::string describe_bad_body(const Fused& op, const NamedTensors& inputs, Backend& backend) {
  const Graph& body = read_body(op).graph;
  Graph open("fused");
  std::vector<Value> values;
  for (const auto& node : body.nodes()) {
    std::vector<Value> operands;
    for (const Value& operand : node->inputs)
      operands.push_back(values[static_cast<size_t>(operand.node->id)]);
    values.push_back({&open.add(node->op, std::move(operands), node->site), 0});
    open.add_output(fmt::format("{}", node->id), values.back());
  }
  const NamedTensors all = evaluate(open, backend, inputs);
  const std::vector<bool> may_be_infinite = made_from_infinity(open);
  for (const auto& node : open.nodes()) {
    const auto id = static_cast<size_t>(node->id);
    const std::string text =
        node->is<Input>() ? ""
                          : describe_bad(*node, all.at(fmt::format("{}", id)), may_be_infinite[id]);
    if (!text.empty()) return text;
  }
  return {};
}

// The loop that a node is, or ends with; null for others.
const Fused* loop_of(const Node& node) {
  if (node.is<FusedMatMul>()) return &node.op_as<FusedMatMul>().loop;
  if (node.is<FusedConv2d>()) return &node.op_as<FusedConv2d>().loop;
  return node.is<Fused>() ? &node.op_as<Fused>() : nullptr;
}

// The inputs of the loop: a product that the node begins with takes the place of its factors.
NamedTensors inputs_of_loop(const Node& node, const NamedTensors& inputs, Backend& backend) {
  if (node.is<Fused>()) return inputs;
  const auto name = [](size_t i) { return fmt::format("{}", i); };
  Graph graph("product");
  std::vector<Value> factors;
  for (size_t i = 0; i < 2; ++i) factors.push_back(input(graph, name(i), node.inputs[i].type()));
  const auto made = [&](const auto& op) {
    const Value product = add_node(op.product, factors);
    return reshape(product, op.type_in_loop(product.type()).shape);
  };
  graph.add_output(
      "0",
      node.is<FusedConv2d>() ? made(node.op_as<FusedConv2d>()) : made(node.op_as<FusedMatMul>()));
  NamedTensors all = evaluate(graph, backend, {{"0", inputs.at("0")}, {"1", inputs.at("1")}});
  for (size_t i = 2; i < node.inputs.size(); ++i) all.emplace(name(i - 1), inputs.at(name(i)));
  return all;
}

}  // namespace

std::string first_not_finite(const Graph& graph,
                             const Launches& launches,
                             Backend& backend,
                             Stream& stream) {
  const std::vector<bool> may_be_infinite = made_from_infinity(graph);
  const auto read = [&](const void* address, const TensorType& type) {
    Tensor tensor(type);
    backend.copy_to_host(stream, tensor.data(), address, tensor.bytes());
    stream.synchronize();
    return tensor;
  };
  for (const Launch& step : launches) {
    const auto id = static_cast<size_t>(step.step->node);
    const Node& node = *graph.nodes()[id];
    NamedTensors inputs;  // inputs of a fused node, which may write over them
    const Fused* const loop = loop_of(node);
    if (loop != nullptr)
      for (size_t i = 0; i < node.inputs.size(); ++i)
        inputs.emplace(fmt::format("{}", i), read(step.inputs[i], node.inputs[i].type()));
    step.queue(stream);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const std::string text =
          describe_bad(node, read(step.outputs[i], node.outputs[i]), may_be_infinite[id]);
      if (text.empty()) continue;
      const std::string inner =
          loop != nullptr ? describe_bad_body(*loop, inputs_of_loop(node, inputs, backend), backend)
                          : "";
      // A body that masks by a constant infinity has nothing to name.
      if (loop != nullptr && inner.empty()) continue;
      return inner.empty() ? text : inner;
    }
  }
  return {};
}

}  // namespace ridge
