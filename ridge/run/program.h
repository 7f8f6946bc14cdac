// A compiled program: entry graphs through the passes, one plan over them, memory, kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/capture.h"
#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/run/data_bindings.h"
#include "ridge/run/derivation.h"
#include "ridge/run/input_staging.h"
#include "ridge/run/launches.h"
#include "ridge/run/state.h"
#include "ridge/run/state_use.h"

namespace ridge {

struct ProgramOptions {
  PipelineOptions passes;
  PlanOptions plan;
  /// Bytes that state and arena may take: cheap results are recomputed until they fit, as far as
  /// that goes. 0: no limit.
  int64_t memory_limit = 0;
  /// Print each graph and parse it back before it is planned: what a run must survive.
  bool reparse = false;
  Capture capture = Capture::kAuto;
  /// Called when all is ready but the memory of the plan: what it takes can be refused or measured.
  std::function<void(const Plan&)> before_memory = nullptr;
};

/// A program before it has memory: graphs that went through the passes, and their plan.
struct CompiledProgram {
  ProgramGraphs graphs;
  std::vector<PassReport> passes;  ///< One a pass and entry; the passes of one entry in a row.
  Plan plan;
};

/// Runs the passes and plans: all that Program does before it takes memory. UserError when the
/// device cannot run the graphs.
CompiledProgram compile_program(ProgramGraphs graphs,
                                Backend& backend,
                                const ProgramOptions& options = {});

/// The same program in the plainest way, against which `--verify` compares: no passes but the
/// required ones, no byte shared, through the printer and the parser, launch by launch.
ProgramOptions plain_options();

enum class RunMode : uint8_t {
  kNormal,
  kNoKernel,  ///< All of the host's work and no kernel: what a step costs the host.
};

/// A place in an entry's data: an input to write before each run, or an output to read after it.
struct DataSlot {
  static constexpr int64_t kNotStaged = -1;

  void* address = nullptr;
  size_t bytes = 0;
  size_t entry = 0;
  int64_t staging = kNotStaged;  ///< Byte offset in the staging slot where an input waits.
  bool is_state = false;         ///< An output that is a buffer of the state, or a part of one.
  size_t number = 0;             ///< Among the inputs or outputs of the entry.
};

/// On a device that runs beside the host there are two streams, of compute and of copies: inputs of
/// the next run are written while one computes (input_staging.h), and results are read beside what
/// is written. Launches stay on one stream. With an edge wherever two of them share bytes, the
/// longest chain of a GPT's step (6 layers, width 256) takes 81 % of the time of all; and what
/// could run beside it are mostly products that fill a device by themselves.
///
/// A thread at a time may use a program. Programs over one state may run at the same time, each
/// with its own arena: those that only read it beside one another, one that writes alone.
class Program {
 public:
  /// Compiles for the backend of `state`, which must outlive it, and declares there what the graphs
  /// need of it. UserError when the device cannot run the graphs or has not the memory, or where
  /// the state has something else under one of the names.
  Program(ProgramGraphs graphs, State& state, const ProgramOptions& options = {});
  /// The same of what was compiled for that backend before: with memory of its own, so that several
  /// threads can run it at once. Programs of one compilation are made one after the other.
  Program(std::shared_ptr<const CompiledProgram> compiled,
          State& state,
          const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Plan& plan() const { return compiled_->plan; }
  const std::vector<Graph>& entries() const { return compiled_->graphs.entries; }
  /// One a pass and entry.
  const std::vector<PassReport>& passes() const { return compiled_->passes; }
  /// Waits for all that was queued: the state is not for use while an entry runs.
  State& state() {
    synchronize();
    return state_;
  }
  const State& state() const {
    synchronize();
    return state_;
  }

  /// Number of the entry of that name; UserError (the nearest is named) when there is none.
  size_t entry(std::string_view name) const;
  /// UserError when the entry has no such data input or output.
  DataSlot input(size_t entry, std::string_view name) const;
  DataSlot output(size_t entry, std::string_view name) const;

  // A step: write all inputs of an entry, run it, read what is wanted, before anything is written
  // for another run. Each call queues its work and allocates nothing, but for the first two runs of
  // an entry that is recorded.

  /// `host` stays as it is until the next run, of any entry, has returned, or synchronize() has:
  /// of a device the run after the one that reads it.
  void write(DataSlot slot, const void* host);
  /// The same from memory that may change at once: for a few bytes.
  void write_scalars(DataSlot slot, const void* host);
  /// The same of rows of `bytes` each that lie `stride` bytes apart on the host: as many as fill
  /// the slot. They too may change at once.
  void write_rows(DataSlot slot, const void* host, size_t bytes, size_t stride);
  /// Runs of the entry read the input at `address`, in memory of the device, and nothing is written
  /// for it; of null, as before. It stays as it is while they run. Returns why it is copied there
  /// at each run; empty where it is not: on the host it must be aligned to its elements, else to 64
  /// bytes. No two addresses of a run may overlap. An entry that was recorded runs launch by launch
  /// once addresses change, and another address waits on a device for what is queued. Allocates
  /// nothing.
  std::string_view bind_input(DataSlot slot, const void* address);
  /// The same for an output, which runs leave there, aligned to 64 bytes; it is for those to read
  /// that know when a run is over, and not by read().
  std::string_view bind_output(DataSlot slot, void* address);
  /// Runs of a plan that binds work in plan().arena_bytes bytes there, aligned to 64 bytes. Inputs
  /// and outputs are bound behind it. Allocates where the address is another one.
  void bind_arena(void* memory);
  /// UserError, with the site, for wrong data (an index out of range); from synchronize(), and then
  /// without, where the device runs beside the host. While tracing is on, each launch is an event
  /// with its site's name. A recording is launched then only where the device records its work too,
  /// behind a first run that shows which site each kernel is of. Waits for the device where the
  /// host is more than two runs ahead of it, by runs whose inputs are written. Derived buffers that
  /// are stale are made first: that takes memory (OutOfMemory where there is none) and waits.
  void run(size_t entry, RunMode mode = RunMode::kNormal);
  /// `host` is written until synchronize() returns; meanwhile the entry's results stay. An output
  /// that is state has the value that the last run of any program gave it.
  void read(DataSlot slot, void* host);
  /// The same of a buffer of the state (one of plan().state), as it is after the last run.
  void read(const PlanSlot& state, void* host);
  void synchronize() const;

  /// Whether runs of the entry launch a recording.
  bool is_recorded(size_t entry) const { return recordings_.at(entry) != nullptr; }
  /// Why they never will: what the device said when it refused, or that addresses change; else
  /// empty.
  const std::string& recording_refusal(size_t entry) const { return refusals_.at(entry); }
  /// Growth in bytes of the device's memory in use while entries were recorded and first replayed.
  /// It is no part of the plan, since the driver alone knows what a recording needs.
  int64_t recorded_bytes() const { return recorded_bytes_; }

  /// Runs the entry once more, launch by launch, and returns the site of the first whose result
  /// holds NaN or an infinity, with what it is; empty when none does. For reports: it allocates.
  std::string first_not_finite(size_t entry);

 private:
  void bind_state();
  void* address(const Place& place, void* arena) const;
  void launch_all(size_t entry);
  bool record(size_t entry);
  void take_inputs(size_t entry);
  void use_state(size_t entry, FunctionRef<void()> queue);
  void rebind(size_t entry);
  void derive(size_t entry);
  void read(const void* address, size_t bytes, void* host);
  void read_state(const void* address, size_t bytes, void* host);

  State& state_;
  Backend& backend_;
  std::shared_ptr<const CompiledProgram> compiled_;
  std::vector<std::shared_ptr<StateBuffer>> buffers_;  ///< By plan().state.
  std::vector<ConstantUse> constants_;                 ///< Those that entries read.
  std::vector<std::vector<StateBuffer*>> updates_;     ///< By entry: the buffers that it updates.
  std::vector<Derivation> derivations_;                ///< By plan().derivations.
  DeviceMemory own_arena_;
  void* arena_ = nullptr;
  std::vector<Launches> launches_;      ///< By entry.
  std::vector<DataBindings> bindings_;  ///< By entry.
  Capture capture_;
  std::vector<std::unique_ptr<Recording>> recordings_;  ///< By entry; null: launch by launch.
  enum class Recorded : uint8_t { kAfterARun, kNext, kDone, kNever };
  std::vector<Recorded> recorded_;     ///< By entry: when.
  std::vector<std::string> refusals_;  ///< By entry.
  std::vector<bool> is_in_trace_;      ///< By entry: whether its last run was traced.
  int64_t recorded_bytes_ = 0;
  // From here on only where the device runs beside the host, but for stream_, which else runs all.
  std::unique_ptr<Event> computed_;  ///< Fires when the results to be read next are computed.
  std::unique_ptr<Event> was_read_;  ///< Fires when results were read, and may be written over.
  mutable bool is_reading_ = false;
  std::unique_ptr<Stream> copies_;
  std::unique_ptr<InputStaging> staging_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<StateUse> use_;
};

}  // namespace ridge
