// The form of a reference kernel: a function of the op and of one call.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ridge/backend/host.h"
#include "ridge/backend/ref/element.h"
#include "ridge/graph/graph.h"

namespace ridge::ref {

/// One run of a node: the types of its inputs and outputs, and where their elements lie.
struct Call {
  const std::vector<TensorType>& inputs;
  const std::vector<TensorType>& outputs;
  const KernelArgs& args;

  template <typename V>
  std::vector<V> read(size_t input) const {
    return read_elements<V>(args.inputs[input], inputs[input]);
  }
  template <typename V>
  void write(size_t output, const std::vector<V>& values) const {
    write_elements(values, args.outputs[output], outputs[output].dtype);
  }
  /// A zero for each element of an output.
  template <typename V>
  std::vector<V> zeros(size_t output) const {
    return std::vector<V>(static_cast<size_t>(outputs[output].elements()), V{0});
  }
  const std::byte* input_bytes(size_t input) const {
    return static_cast<const std::byte*>(args.inputs[input]);
  }
  std::byte* output_bytes(size_t output) const {
    return static_cast<std::byte*>(args.outputs[output]);
  }
};

/// Adds `run`, a function (const T&, const Call&), as the kernel of op T. The kernel keeps the op
/// and the types, not the node.
template <typename T, typename F>
void add_kernel(KernelTable& table, F run) {
  table.add(T::kTraits.name, Choice{.name = "reference"}, [run](const Node& node) {
    std::shared_ptr<const T> op(node.op, &node.op_as<T>());
    return std::make_unique<HostKernel>(
        [run, op = std::move(op), inputs = node.input_types(), outputs = node.outputs](
            const KernelArgs& args) { run(*op, Call{inputs, outputs, args}); });
  });
}

}  // namespace ridge::ref
