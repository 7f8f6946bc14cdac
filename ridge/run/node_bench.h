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
  /// `backend` must outlive it; `now` is the clock, in ns. OutOfMemory where the device has no free
  /// memory for operands and results, and in add() where it has none for a kernel's workspace.
  NodeBench(const Node& node, Backend& backend, int64_t (*now)());

  /// The operands by number, on the host: for nodes that are small.
  NamedTensors operands() const;

  /// Adds a kernel to be run, and takes the last one away again.
  void add(std::unique_ptr<NodeKernel> kernel);
  void drop_last();

  /// Runs kernel number `kernel` and returns its results, by number of the result. Elements that it
  /// does not write are zero. The tensor of a large result has one axis and holds pieces at equal
  /// distances.
  NamedTensors results(size_t kernel);
  /// The same for the magnitudes of the operands: for a node that is linear in each of them, the
  /// sums of the magnitudes of its terms.
  NamedTensors results_of_magnitudes(size_t kernel);

  /// Seconds of one launch, by kernel and round. Kernels take turns. Where a launch takes the host
  /// as long as the device, many are recorded and launched as one; and where the operands fit into
  /// the device's cache, but hardly together with what a run has between two uses of them, launches
  /// go around several copies.
  std::vector<std::vector<double>> time();

 private:
  enum class Fill : uint8_t { kSigned, kMagnitudes };
  void fill(Fill what);
  void* operand(size_t input, size_t copy = 0) {
    return const_cast<void*>(copies_[copy].inputs[input]);
  }
  void run(size_t kernel);
  void add_copies();
  void launch(size_t kernel, size_t copy);
  void record(size_t kernel);
  int64_t timed(size_t kernel, int64_t launches);
  Tensor read(size_t result);

  Backend& backend_;
  int64_t (*now_)();
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceMemory> memory_;
  DeviceMemory workspace_;  ///< All kernels share it, for they run one after the other.
  size_t workspace_bytes_ = 0;
  struct Places {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  Places add_places();

  std::vector<Places>
      copies_;  ///< The first is filled and read; others are there while time() runs.
  std::vector<TensorType> operand_types_, types_;
  std::vector<std::unique_ptr<NodeKernel>> kernels_;
  std::vector<std::unique_ptr<Recording>> recordings_;  ///< By kernel; null: launched one by one.
};

}  // namespace ridge
