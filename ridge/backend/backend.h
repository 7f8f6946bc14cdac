// The whole contract between the engine and a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/graph/graph.h"

namespace ridge {

/// One way to compute a node. Its id is its position in Backend::candidates().
struct Choice {
  std::string name;  ///< Stable; plans and recipes pin it.
  int bits = 0;      ///< Choices of one node with equal `bits` give the same bits.
  /// Whether a GPU's choice may give other bits than the CPU's first choice for the node.
  bool other_bits = false;
};

/// Number of the first choice that has the CPU's bits; of the first of all where none has them.
size_t same_bits_choice(const std::vector<Choice>& choices);

/// Whether choice number `choice` may give other bits than same_bits_choice() or than the CPU.
bool has_other_bits(const std::vector<Choice>& choices, size_t choice);

/// Name of the choice that runs a fused node op by op: right, and no faster than the ops.
inline constexpr std::string_view kExpandedChoice = "expanded";

class NodeKernel;

/// Elements in memory of the host: a tensor of the type `lying`, which may be unaligned, of whose
/// axes perm[i] is axis i of an operand; all as they are where `perm` is empty. Unless `scale` is
/// empty, an element of the operand is the one that lies there times the number of its place on the
/// operand's last axis, rounded once.
struct LyingElements {
  TensorType lying;
  std::vector<int64_t> perm = {};
  std::vector<double> scale = {};
};

/// An operand that a kernel would rather read packed: laid out for it beforehand.
struct PackedOperand {
  size_t input = 0;  ///< Number of the node's input.
  /// Names what `pack` makes of an operand: two of one name make the same of it.
  std::string layout;
  /// Adds ops to the operand's graph that pack it; the backend has kernels for them. Null: the
  /// kernel reads the bytes of a constant as they lie, at any address of the host's memory.
  std::function<Value(Value operand)> pack;
  /// The kernel reads the operand nearly as fast where it lies: only constants are packed for it,
  /// while weights of a mapped file stay there, at once and shared with other processes.
  bool only_constants = false;
  /// The kernel that makes the same bytes of an operand's elements in one go: its input is their
  /// address, and it needs no workspace. It may be null, and may return null for elements that lie
  /// otherwise: then `pack` is run.
  std::function<std::unique_ptr<NodeKernel>(const LyingElements& from)> kernel = nullptr;
  /// An operand that is a parameter under another shape is packed, too, by `pack`: plain forms make
  /// such operands.
  bool may_be_reshaped = false;
};

/// Addresses of one launch, in the order of the node's inputs and outputs: device memory, row-major
/// and contiguous. Outputs and workspace are 64-byte aligned, and so are inputs but on the host,
/// where those that lie in a mapped file or in a caller's memory are aligned to their elements. The
/// spans must stay valid until the launch has run.
struct KernelArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;  ///< workspace_bytes() of them; contents undefined.
};

/// A point in the work of a stream that other streams and the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  /// Returns when what it stands for now has run; at once where it was never recorded.
  /// Stream::synchronize() reports an error of that work.
  virtual void synchronize() = 0;
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
  /// Compiles and loads what launch() needs, which else does so the first time. UserError when that
  /// fails.
  virtual void prepare() const {}
  /// Queues one run. UserError for wrong data (an index out of range), at the latest from
  /// Stream::synchronize().
  virtual void launch(Stream& stream, const KernelArgs& args) const = 0;
};

/// Launches that were queued once and are launched again as one, with the addresses of then.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Queues all of it. Errors of data come at the latest from Stream::synchronize().
  virtual void launch(Stream& stream) const = 0;
};

/// The result of Backend::record().
struct RecordingResult {
  std::unique_ptr<Recording> recording;  ///< Null: see `refusal`.
  std::string refusal;                   ///< Why one of the launches cannot be recorded.
};

/// Bytes a second of large copies between host and device; 0: not measured.
struct TransferRates {
  double to_device = 0, to_host = 0;
};

/// The measured rates of a machine.
struct Calibration {
  std::map<DType, double> flops_per_s;  ///< Peak multiply-adds (2 each) of dtypes with a kernel.
  double copy_bytes_per_s = 0;          ///< Read + written bytes of a large copy.
  double launch_s = 0;                  ///< Host time to launch a kernel that does nothing.
  // Only devices that run beside the host have these; else 0.
  TransferRates pinned, pageable;  ///< By the kind of the host's memory.
  double graph_node_s = 0;         ///< Device time of a captured kernel that does nothing.
};

/// Hears what a backend does without though it is there, when that is found: when it is made, or
/// when a node is first asked for. A line for the user each.
using NoteListener = std::function<void(const std::string&)>;
inline void ignore_note(const std::string& /*note*/) {}

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// True when the host may read and write the device's memory by its addresses.
  virtual bool is_host() const { return false; }
  /// True when queued work runs beside the host; else it has run when the call that queues it
  /// returns.
  virtual bool is_asynchronous() const { return !is_host(); }
  /// Whether kernels read operands of that dtype where they lie in memory of the host: see
  /// KernelArgs.
  bool can_read_at(const void* host, DType dtype) const {
    return is_host() && reinterpret_cast<uintptr_t>(host) % size_of(dtype) == 0;
  }

  /// Whether, where 16 bits are asked for, what products read and make is best kept in 16 bits: its
  /// products read them as they are. Else they round f32 on the way.
  virtual bool stores_16_bits() const { return false; }

  /// Products are fast where the rows of a large operand are a multiple of so many elements; 1
  /// where it does not matter.
  virtual int64_t column_multiple() const { return 1; }

  /// The ways to compute `node`, best guess first; none when the backend cannot.
  virtual std::vector<Choice> candidates(const Node& node) const = 0;
  /// The kernel of candidates(node)[choice]; InternalError when out of range.
  virtual std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const = 0;

  /// All that the kernel of candidates(node)[choice] would pack at each launch, where it is worth
  /// its memory to have that packed once.
  virtual std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const;
  /// The kernel of that choice for operands that are packed so: the same bits, in no more
  /// workspace. InternalError where there are none.
  virtual std::unique_ptr<NodeKernel> instantiate_packed(const Node& node, size_t choice) const;

  /// 64-byte aligned memory of the device; OutOfMemory when the device has less free, UserError
  /// when it fails.
  virtual void* allocate(size_t bytes) = 0;
  /// The same with zeros in it and every page in memory.
  virtual void* allocate_zeros(size_t bytes);
  virtual void deallocate(void* memory) noexcept = 0;
  /// Memory of the host that copies read and write while the host goes on: page-locked, where the
  /// device asks for that. 64-byte aligned; UserError when it cannot be had.
  virtual void* allocate_host(size_t bytes);
  virtual void deallocate_host(void* memory) noexcept;
  /// Queue a copy between host and device memory. Host memory stays as it is, and is read by nobody
  /// else while it is written, until the copy has run; other memory than that of allocate_host()
  /// may make the host wait.
  virtual void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) = 0;
  virtual void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) = 0;
  /// Queues a copy within device memory; the two places share no byte.
  virtual void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) = 0;

  /// Queues zeros into device memory.
  virtual void clear(Stream& stream, void* device, size_t bytes);

  virtual std::unique_ptr<Stream> make_stream() = 0;

  /// Whether record() can be called.
  virtual bool can_record() const { return false; }
  /// Records the launches of `queue` on `stream`, to be launched again and again; none of them runs
  /// now. `queue` makes only launches: no copies, events or waits. Kernels and KernelArgs must stay
  /// valid as long as the recording lives. InternalError where the backend cannot record at all.
  virtual RecordingResult record(Stream& stream, FunctionRef<void()> queue);

  /// Identifies the device where the processor's name does not: measurements of one device are not
  /// taken for another's. Empty: the device is the processor.
  virtual std::string hardware() const { return {}; }
  /// Bytes of the device's own memory that are in use, by all processes; 0: it has none of its own.
  virtual int64_t memory_in_use() const { return 0; }
  /// Bytes of the device's last cache, where what a kernel reads may be in it by chance; 0: of no
  /// matter.
  virtual int64_t cache_bytes() const { return 0; }
  /// The device as NVIDIA's tools name it ("GPU-8e5c..."); empty where it is no such.
  virtual std::string gpu_uuid() const { return {}; }

  /// Measures, in about a second, with the threads that are set now.
  virtual Calibration calibrate() = 0;
};

/// Device memory that frees itself.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend& backend, size_t bytes) : memory_(backend.allocate(bytes), Free{&backend}) {}
  /// Memory of Backend::allocate_zeros().
  static DeviceMemory zeros(Backend& backend, size_t bytes) {
    DeviceMemory memory;
    memory.memory_ = {backend.allocate_zeros(bytes), Free{&backend}};
    return memory;
  }
  void* get() const { return memory_.get(); }
  void* release() { return memory_.release(); }

 private:
  struct Free {
    Backend* backend;  // no initializer: clang could not default-construct Free in this class
    void operator()(void* memory) const { backend->deallocate(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

/// Memory of Backend::allocate_host() that frees itself.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(Backend& backend, size_t bytes)
      : memory_(backend.allocate_host(bytes), Free{&backend}) {}
  std::byte* get() const { return static_cast<std::byte*>(memory_.get()); }

 private:
  struct Free {
    Backend* backend;
    void operator()(void* memory) const { backend->deallocate_host(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

}  // namespace ridge
