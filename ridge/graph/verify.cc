#include "ridge/graph/verify.h"

#include <set>
#include <unordered_map>

#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

void verify_node(const Graph& graph, const Node& node) {
  const Lazily printed{[&] { return print(node); }};
  for (const Value& input : node.inputs) {
    check_internal(input.node != nullptr && input.node->graph == &graph,
                   "an input of '{}' is not of this graph",
                   node.site.name);
    const auto position = static_cast<size_t>(input.node->id);
    check_internal(input.node->id < node.id && graph.nodes()[position].get() == input.node,
                   "an input does not come before the node: {}",
                   printed);
    check_internal(
        input.index >= 0 && static_cast<size_t>(input.index) < input.node->outputs.size(),
        "an input is not a result of its node: {}",
        printed);
  }
  const OpTraits& traits = node.op->traits();
  const int arity = static_cast<int>(node.inputs.size());
  check_internal(arity >= traits.min_inputs && arity <= traits.max_inputs,
                 "wrong number of inputs: {}",
                 printed);
  check_internal(node.inputs.empty() || traits.dtypes.has(node.inputs[0].dtype()),
                 "dtype not accepted: {}",
                 printed);
  try {
    check_internal(node.op->infer(node.input_types()) == node.outputs,
                   "the types are not those that the op infers: {}",
                   printed);
  } catch (const UserError& error) {
    throw InternalError(fmt::format("{}: {}", error.what(), print(node)));
  }
}

}  // namespace

void verify(const Graph& graph) {
  std::unordered_map<std::string, const Node*> sites;
  std::set<std::string> input_names;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = *graph.nodes()[i];
    check_internal(node.id == static_cast<int>(i) && node.graph == &graph,
                   "node '{}' is not at its place",
                   node.site.name);
    verify_node(graph, node);
    const auto [first, is_new] = sites.emplace(node.site.name, &node);
    check_internal(is_new || equal(*first->second->op, *node.op),
                   "two nodes have the site '{}': {}",
                   node.site.name,
                   Lazily{[&] { return print(node); }});
    if (node.is<Input>())
      check_internal(input_names.insert(node.op_as<Input>().input_name).second,
                     "two inputs have one name: {}",
                     Lazily{[&] { return print(node); }});
  }
  std::set<std::string> names, updated;
  for (const Output& output : graph.outputs()) {
    check_internal(names.insert(output.name).second, "two outputs are named '{}'", output.name);
    const bool known = output.value.node != nullptr && output.value.node->graph == &graph;
    check_internal(known, "output '{}' is not of this graph", output.name);
    if (output.updates.empty()) continue;
    const Node* input = graph.find_input(output.updates);
    check_internal(input != nullptr && input->outputs[0] == output.value.type() &&
                       updated.insert(output.updates).second,
                   "output '{}' cannot update '{}'",
                   output.name,
                   output.updates);
  }
}

}  // namespace ridge
