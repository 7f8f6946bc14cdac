// The buffers that live from run to run: parameters, moments, gradients, statistics. They stand by
// themselves, so that several programs can share them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/program_graphs.h"
#include "ridge/run/state_lock.h"

namespace ridge {

class StateUse;

/// A buffer of a state. Its address never changes.
struct StateBuffer {
  StateEntry entry;
  std::byte* data = nullptr;
  uint64_t version = 0;  ///< Raised by each run that updates it, and each write. 0: never written.
  /// The owner of memory that is not the state's and that nobody may write; null for all other.
  std::shared_ptr<const void> lender = nullptr;
  DeviceMemory memory = {};  ///< Only of constants that are copied.
  /// The block that it lies in with all that was declared with it: only of what is derived.
  std::shared_ptr<const DeviceMemory> block = nullptr;
  int64_t uses = 0;  ///< How many ConstantUses there are of a constant.
  // Only for what is derived:
  std::vector<uint64_t> made_from = {};  ///< The versions of its sources; empty: never made.
};

/// Named buffers in the memory of one backend. Any thread may call any function at any time: those
/// that only read wait for what writes, as runs of programs do (state_use.h).
class State {
 public:
  /// `backend` must outlive it, and it all programs over it.
  explicit State(Backend& backend);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Backend& backend() const { return backend_; }

  /// Adds the buffers that are not there, and returns all of them: zeros, every page in memory, all
  /// in one block in their order. What is derived lies in a block of its own, not touched yet; a
  /// constant has an address while there is a ConstantUse of it: both are gone when nobody holds
  /// them any more, a block with the last that lies there. UserError where one is there with
  /// another dtype, shape, role or derivation, or as another constant, or where the device has not
  /// the memory; then nothing was added. Of what is there no element is looked at, but for
  /// constants that come from other memory, and runs go on.
  std::vector<std::shared_ptr<StateBuffer>> declare(std::span<const StateEntry> entries);

  /// Whether adopt() takes memory there as it is: the host can use it, and kernels read operands of
  /// that type there.
  bool can_adopt(const TensorType& type, const void* data) const;
  /// Adds a buffer that lies in memory of `lender`, a mapped file say, which is kept and never
  /// written: a program that updates the buffer is refused. UserError where a buffer of that name
  /// is there already; InternalError unless can_adopt().
  void adopt(const StateEntry& entry, const void* data, std::shared_ptr<const void> lender);

  bool has(std::string_view name) const;
  /// All entries that are neither derived nor constant, by name.
  std::vector<StateEntry> entries() const;
  /// Bytes of device memory that it has now.
  int64_t bytes() const;

  // UserError when there is no buffer of that name (the nearest is named).

  std::shared_ptr<StateBuffer> buffer(std::string_view name) const;
  /// The same of one that is to be written: UserError where its memory is lent, it is derived, or a
  /// constant.
  std::shared_ptr<StateBuffer> writable(std::string_view name) const;
  uint64_t version(std::string_view name) const;
  /// Writes the first value of every buffer that was never written: a function of `seed`, its name
  /// and its type. Piece by piece: memory does not hold a buffer twice.
  void initialize(uint64_t seed);
  /// UserError when the type is another.
  void write(std::string_view name, const Tensor& tensor);
  Tensor read(std::string_view name) const;
  /// `bytes` bytes of a buffer from byte `first` on, for callers that have no memory for it twice.
  void write_part(std::string_view name, size_t first, const void* host, size_t bytes);
  /// The address in device memory, for the time in which no program runs; the host may use it where
  /// Backend::is_host().
  const void* data(std::string_view name) const { return buffer(name)->data; }

 private:
  friend class StateUse;
  friend class ConstantUse;
  friend class Program;

  std::shared_ptr<StateBuffer> find(std::string_view name) const;
  void place_derived(std::span<const std::pair<StateBuffer*, int64_t>> offsets,
                     int64_t bytes) const;
  void use_constant(StateBuffer& buffer) const;
  void leave_constant(StateBuffer& buffer) const;
  /// Gives back the memory of the last constant, which waits for the next.
  void free_spare() const;
  void place_elements(const StateConstant& constant, const TensorType& type, void* to) const;
  void write_locked(StateBuffer& buffer, size_t first, const void* host, size_t bytes);
  void wait_for_programs() const;

  Backend& backend_;

  std::mutex declaring_;          ///< One declaration at a time.
  mutable std::mutex constants_;  ///< It guards where constants lie, their uses, and these two.
  mutable DeviceMemory spare_;
  mutable size_t spare_bytes_ = 0;
  mutable std::mutex names_;  ///< It guards the members below, up to the next lock.
  using Buffers = std::map<std::string, std::shared_ptr<StateBuffer>, std::less<>>;
  Buffers buffers_;
  /// Buffers that are derived or constant.
  std::map<std::string, std::weak_ptr<StateBuffer>, std::less<>> held_;
  std::vector<DeviceMemory> blocks_;
  int64_t bytes_ = 0;

  /// Shared while a run that only reads is queued, else held alone. With it: all below, and what
  /// the buffers hold.
  mutable StateLock runs_;
  std::vector<StateUse*> uses_;
  uint64_t next_use_ = 0;
  /// Events outlive the programs that they are of: streams of others may still wait for them. Those
  /// that no program has are taken by the next.
  mutable std::vector<std::unique_ptr<Event>> events_;
  mutable std::vector<Event*> free_events_;
  mutable std::unique_ptr<Stream> stream_;  ///< The state's own copies; made by the first.
};

/// A constant has an address while there is one of these: its elements lie where can_adopt() takes
/// them, or are copied, in its order of axes. Where only derived buffers are made of it, it takes
/// memory only meanwhile.
class ConstantUse {
 public:
  /// `state` must outlive it. UserError where the device has not the memory.
  ConstantUse(const State& state, std::shared_ptr<StateBuffer> constant);
  ConstantUse(ConstantUse&&) = default;
  ~ConstantUse();

 private:
  const State* state_;
  std::shared_ptr<StateBuffer> constant_;
};

/// True for what a checkpoint keeps: all but gradients, which are zero between steps, and what is
/// made from parameters.
bool is_saved(StateRole role);

/// Device memory of zeros, with every page touched: what is planned is resident from the start.
DeviceMemory resident_memory(Backend& backend, int64_t bytes);

}  // namespace ridge
