// The whole contract between the engine and a device.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// One way to compute a node. Its id is its position in Backend::candidates().
struct Choice {
  std::string name;  ///< Stable; plans and recipes pin it.
  int bits = 0;      ///< Choices of one node with equal `bits` give the same bits.
};

/// Name of the choice that runs a fused node op by op: right, and no faster than the ops.
inline constexpr std::string_view kExpandedChoice = "expanded";

/// Addresses of one launch, in the order of the node's inputs and outputs. All are 64-byte aligned
/// device memory, row-major and contiguous. The spans must stay valid until the launch has run.
struct KernelArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;  ///< workspace_bytes() of them; contents undefined.
};

/// A point in the work of a stream that other streams and the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

/// A queue of work, run in order. Two streams of a backend run side by side.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// The event stands for all work queued so far.
  virtual void record(Event& event) = 0;
  /// Work queued from now on runs after the event, of this or another stream.
  virtual void wait(Event& event) = 0;
  /// Returns when all queued work has run; rethrows the first error of that work.
  virtual void synchronize() = 0;
};

/// A node made ready to run: it holds copies of all that it needs of the node.
class NodeKernel {
 public:
  virtual ~NodeKernel() = default;
  virtual size_t workspace_bytes() const { return 0; }
  /// Queues one run. UserError for wrong data (an index out of range), at the latest from
  /// Stream::synchronize().
  virtual void launch(Stream& stream, const KernelArgs& args) const = 0;
};

/// What a machine can do, measured.
struct Calibration {
  std::map<DType, double> flops_per_s;  ///< Peak multiply-adds (2 each) of dtypes with a kernel.
  double copy_bytes_per_s = 0;          ///< Read + written bytes of a large copy.
  double launch_s = 0;                  ///< Host time to launch a kernel that does nothing.
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// True when the host may read and write the device's memory by its addresses.
  virtual bool is_host() const { return false; }

  /// The ways to compute `node`, best guess first; none when the backend cannot.
  virtual std::vector<Choice> candidates(const Node& node) const = 0;
  /// The kernel of candidates(node)[choice]; InternalError when out of range.
  virtual std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const = 0;

  /// 64-byte aligned memory of the device; UserError when it cannot be had.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* memory) noexcept = 0;
  /// Queue a copy between host and device memory.
  virtual void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) = 0;
  virtual void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;

  /// Measures, in about a second, with the threads that are set now.
  virtual Calibration calibrate() = 0;
};

/// Device memory that frees itself.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend& backend, size_t bytes) : memory_(backend.allocate(bytes), Free{&backend}) {}
  void* get() const { return memory_.get(); }

 private:
  struct Free {
    Backend* backend;  // no initializer: clang could not default-construct Free in this class
    void operator()(void* memory) const { backend->deallocate(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

}  // namespace ridge
