// Computes at compile time what depends on constants alone, by the kernels that would have run.
//
//   c = mul(2, 3)      ->    y = add(x, 6)
//   y = add(x, c)
//
// Elementwise ops on splats, and broadcasts and reshapes of them, stay splats whatever their size.
#include <algorithm>

#include "ridge/base/tensor.h"
#include "ridge/compile/pass.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// Results with more elements stay nodes: a constant is filled in at every run, and kept in memory.
constexpr int64_t kLargestFolded = 1024;

// Runs the nodes of a graph of constants in order; the last one's first result.
Tensor run_constants(const Graph& graph, Backend& backend) {
  const auto stream = backend.make_stream();
  std::vector<std::vector<DeviceMemory>> results(graph.nodes().size());
  for (const auto& node : graph.nodes()) {
    std::vector<const void*> inputs;
    for (const Value& input : node->inputs)
      inputs.push_back(results[static_cast<size_t>(input.node->id)][0].get());
    std::vector<void*> outputs;
    auto& memories = results[static_cast<size_t>(node->id)];
    for (const TensorType& type : node->outputs) {
      memories.emplace_back(backend, static_cast<size_t>(type.bytes()));
      outputs.push_back(memories.back().get());
    }
    const auto kernel = backend.instantiate(*node, 0);
    const DeviceMemory workspace(backend, kernel->workspace_bytes());
    kernel->launch(*stream, {inputs, outputs, workspace.get()});
    stream->synchronize();
  }
  Tensor tensor(graph.nodes().back()->outputs[0]);
  backend.copy_to_host(*stream, tensor.data(), results.back()[0].get(), tensor.bytes());
  stream->synchronize();
  return tensor;
}

Constant constant_of(const Tensor& tensor) {
  Constant op;
  op.dtype = tensor.type().dtype;
  op.shape = tensor.type().shape;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (op.dtype == DType::kI64)
      op.ints.push_back(tensor.span<int64_t>()[static_cast<size_t>(i)]);
    else if (is_float(op.dtype))
      op.values.push_back(tensor.at(i));
    else
      op.ints.push_back(static_cast<int64_t>(tensor.at(i)));
  }
  return op;
}

bool has_kernels(const Graph& graph, Backend& backend) {
  return std::none_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return backend.candidates(*node).empty();
  });
}

// The node on constants of the same values; elementwise nodes on splats as if of one element.
void build_alone(const Node& node, std::span<const Value> constants, bool as_scalar, Graph& graph) {
  std::vector<Value> inputs;
  for (const Value& value : constants) {
    Constant op = value.node->op_as<Constant>();
    if (as_scalar) op.shape = {};
    inputs.push_back({&graph.add(std::make_shared<const Constant>(std::move(op)), {}), 0});
  }
  graph.add(node.op, std::move(inputs));
}

bool is_view(const Node& node) { return node.is<Broadcast>() || node.is<Reshape>(); }

// The constant that the node's one result is on these inputs; nothing when it is to stay.
std::optional<Constant> fold(const Node& node, std::span<const Value> inputs, Backend& backend) {
  if (inputs.empty() || node.outputs.size() != 1) return std::nullopt;
  bool splats = true;
  for (const Value& input : inputs) {
    if (!input.node->is<Constant>()) return std::nullopt;
    splats = splats && input.node->op_as<Constant>().is_splat();
  }
  const TensorType& type = node.outputs[0];
  if (splats && is_view(node)) {
    Constant op = inputs[0].node->op_as<Constant>();
    op.shape = type.shape;
    return op;
  }
  const bool as_scalar = splats && node.op->traits().elementwise;
  if (!as_scalar && type.elements() > kLargestFolded) return std::nullopt;
  Graph alone("constants");
  build_alone(node, inputs, as_scalar, alone);
  if (!has_kernels(alone, backend)) return std::nullopt;
  Constant op = constant_of(run_constants(alone, backend));
  if (as_scalar) op.shape = type.shape;
  return op;
}

}  // namespace

bool fold_constants(Graph& graph, PassContext& context) {
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    std::optional<Constant> constant = fold(*node, rewrite.mapped_inputs(*node), context.backend);
    if (!constant) {
      rewrite.copy(*node);
      continue;
    }
    Node& folded =
        rewrite.to().add(std::make_shared<const Constant>(std::move(*constant)), {}, node->site);
    rewrite.replace(*node, {{&folded, 0}});
    changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
