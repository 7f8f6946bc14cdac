// A node by itself on a device, with numbers to work on: what each of its kernels gives, and how
// long each takes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/graph/graph.h"
#include "ridge/run/evaluate.h"

namespace ridge {

/// Operands are random numbers in [-1, 1) that repeat themselves; indices are 0, which every table
/// has. They are written on the device: a node may be larger than the host's memory.
class NodeBench {
 public:
  /// `backend` must outlive it; `now` is the clock, in ns.
  NodeBench(const Node& node, Backend& backend, int64_t (*now)());

  /// The operands by number, on the host: for nodes that are small.
  NamedTensors operands() const;

  /// Adds a kernel to be run, and takes the last one away again.
  void add(std::unique_ptr<NodeKernel> kernel);
  void drop_last();

  /// What kernel number `kernel` gives, by number of the result. What it does not write is zero. Of
  /// a large result the tensor is of one axis and holds pieces at equal distances.
  NamedTensors results(size_t kernel);
  /// The same for the magnitudes of the operands: for a node that is linear in each of them, the
  /// sums of the magnitudes of its terms.
  NamedTensors results_of_magnitudes(size_t kernel);

  /// Seconds of one launch, by kernel and round. Kernels take turns.
  std::vector<std::vector<double>> time();

 private:
  enum class Fill : uint8_t { kSigned, kMagnitudes };
  void fill(Fill what);
  void run(size_t kernel);
  int64_t timed(size_t kernel, int64_t repeats);
  Tensor read(size_t result);

  Backend& backend_;
  int64_t (*now_)();
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceMemory> memory_, workspaces_;
  std::vector<const void*> inputs_;
  std::vector<void*> operand_memory_, outputs_;
  std::vector<TensorType> operand_types_, types_;
  std::vector<std::unique_ptr<NodeKernel>> kernels_;
};

}  // namespace ridge
