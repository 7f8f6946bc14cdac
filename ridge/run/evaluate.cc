#include "ridge/run/evaluate.h"

#include <algorithm>

#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node* node : graph.inputs()) names.push_back(node->op_as<Input>().input_name);
  return names;
}

void check_inputs(const Graph& graph, const NamedTensors& inputs) {
  for (const auto& [name, tensor] : inputs) {
    const Node* node = graph.find_input(name);
    if (node == nullptr)
      throw UserError(fmt::format("graph '{}' has no input '{}'", graph.name(), name),
                      did_you_mean(name, input_names(graph)));
    check(tensor.type() == node->outputs[0],
          "input '{}' has another type; got {}, expected {}",
          name,
          to_string(tensor.type()),
          to_string(node->outputs[0]));
  }
  for (const std::string& name : input_names(graph))
    check(inputs.contains(name), "input '{}' of graph '{}' is missing", name, graph.name());
}

// Runs nodes one by one; each result lives until the evaluation ends.
class Evaluation {
 public:
  Evaluation(Backend& backend, const ChooseKernel& choose)
      : backend_(backend), choose_(choose), stream_(backend.make_stream()) {}

  NamedTensors run(const Graph& graph, const NamedTensors& inputs) {
    std::vector<std::vector<DeviceMemory>> results(graph.nodes().size());
    for (const auto& node : graph.nodes()) {
      auto& memories = results[static_cast<size_t>(node->id)];
      for (const TensorType& type : node->outputs)
        memories.emplace_back(backend_, static_cast<size_t>(type.bytes()));
      if (node->is<Input>()) {
        const Tensor& tensor = inputs.at(node->op_as<Input>().input_name);
        backend_.copy_to_device(*stream_, memories[0].get(), tensor.data(), tensor.bytes());
      } else {
        run_node(*node, results);
      }
    }
    NamedTensors outputs;
    for (const Output& output : graph.outputs()) {
      Tensor tensor(output.value.type());
      const auto& memories = results[static_cast<size_t>(output.value.node->id)];
      backend_.copy_to_host(*stream_,
                            tensor.data(),
                            memories[static_cast<size_t>(output.value.index)].get(),
                            tensor.bytes());
      outputs.emplace(output.name, std::move(tensor));
    }
    stream_->synchronize();
    return outputs;
  }

 private:
  void run_node(const Node& node, const std::vector<std::vector<DeviceMemory>>& results) {
    const std::vector<Choice> choices = backend_.candidates(node);
    std::vector<const void*> inputs;
    for (const Value& value : node.inputs)
      inputs.push_back(
          results[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)].get());
    std::vector<void*> outputs;
    for (const DeviceMemory& memory : results[static_cast<size_t>(node.id)])
      outputs.push_back(memory.get());
    try {
      if (choices.empty()) return run_expanded(node, inputs, outputs);
      const auto kernel = backend_.instantiate(node, choose_ ? choose_(node, choices) : 0);
      const DeviceMemory workspace(backend_, kernel->workspace_bytes());
      kernel->launch(*stream_, {inputs, outputs, workspace.get()});
      stream_->synchronize();  // the argument tables and the workspace end here
    } catch (const UserError& error) {
      const std::string site = fmt::format(", at site '{}'", node.site.name);
      // An error that a device finds while it runs names the site already.
      if (error.message().ends_with(site)) throw;
      throw UserError(error.message() + site, error.fix());
    }
  }

  // The node's expansion, evaluated as a graph of its own.
  void run_expanded(const Node& node,
                    const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs) {
    Graph graph(node.site.name);
    std::vector<Value> values;
    NamedTensors tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorType& type = node.inputs[i].type();
      values.push_back(input(graph, fmt::format("{}", i), type));
      Tensor tensor(type);
      backend_.copy_to_host(*stream_, tensor.data(), inputs[i], tensor.bytes());
      tensors.emplace(fmt::format("{}", i), std::move(tensor));
    }
    stream_->synchronize();
    const std::vector<Value> plain = node.op->expand(values);
    check(!plain.empty(),
          "[{}] device '{}' has no kernel for {}",
          node.op->name(),
          backend_.name(),
          to_string(node.outputs[0]));
    for (size_t i = 0; i < plain.size(); ++i) graph.add_output(fmt::format("{}", i), plain[i]);
    const NamedTensors results = Evaluation(backend_, choose_).run(graph, tensors);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& tensor = results.at(fmt::format("{}", i));
      backend_.copy_to_device(*stream_, outputs[i], tensor.data(), tensor.bytes());
    }
    stream_->synchronize();
  }

  Backend& backend_;
  const ChooseKernel& choose_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

NamedTensors evaluate(const Graph& graph,
                      Backend& backend,
                      const NamedTensors& inputs,
                      const ChooseKernel& choose) {
  check_inputs(graph, inputs);
  return Evaluation(backend, choose).run(graph, inputs);
}

}  // namespace ridge
