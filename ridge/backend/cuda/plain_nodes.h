// Nodes that need no kernel: copies and fills of the driver; nodes run op by op; and what comes
// before the first launch of a library's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/graph/graph.h"

namespace ridge::cuda {

/// True for ops whose result is the bytes of their first input.
bool is_copy(const Node& node);
std::unique_ptr<NodeKernel> make_copy_node(const Node& node);

/// The byte that a constant is made of, where it is one: zeros of any dtype, among others.
std::optional<unsigned char> byte_of_constant(const Node& node);
std::unique_ptr<NodeKernel> make_fill_node(const Node& node, unsigned char byte);

/// A constant that lies on the device from the first launch on, and is copied from there.
std::unique_ptr<NodeKernel> make_stored_constant(const Node& node, DeviceRef device);

/// The plain form of `node` as a graph with inputs "0", "1", ... and outputs "0", "1", ...; none
/// where the op has none.
std::optional<Graph> plain_form(const Node& node);

/// A library's `kernel` of operands and results of these types, whose prepare() launches it once,
/// on zeros that are freed again, unless `is_warm` is set already: a library loads the code of a
/// kernel, into memory of the device, when it first runs, which would be in the middle of a
/// measurement, or of a capture. Loading is left to the first launch if there is no free memory for
/// the operands.
std::unique_ptr<NodeKernel> make_warmed_node(
    std::unique_ptr<NodeKernel> kernel,
    std::vector<TensorType> inputs,
    std::vector<TensorType> outputs,
    DeviceRef device,
    std::function<std::unique_ptr<ridge::Stream>()> make_stream,
    std::shared_ptr<bool> is_warm);

using MakeKernel = std::function<std::unique_ptr<NodeKernel>(const Node&)>;

/// Results of a form lie where operands do, maybe, so that they are copied there in the end; or
/// apart from all operands, so that their nodes write them there.
enum class ResultsLie : uint8_t { kAnywhere, kApart };

/// Runs `form`, a graph as of plain_form(), by a kernel that `make` makes for each of its nodes but
/// the inputs. The workspace holds all values in between.
std::unique_ptr<NodeKernel> make_expanded_node(const Graph& form,
                                               const MakeKernel& make,
                                               ResultsLie lie = ResultsLie::kAnywhere);

}  // namespace ridge::cuda
