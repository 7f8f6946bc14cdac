// A compiled program: entry graphs through the passes, one plan over them, memory, kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/run/state.h"

namespace ridge {

struct ProgramOptions {
  PipelineOptions passes;
  PlanOptions plan;
  /// Bytes that state and arena may take: cheap results are made again until they do, as far as
  /// that goes. 0: as many as it needs.
  int64_t memory_limit = 0;
  /// Print each graph and parse it back before it is planned: what a run must survive.
  bool reparse = false;
  /// Called when all is ready but the memory of the plan: what it takes can be refused or measured.
  std::function<void(const Plan&)> before_memory = nullptr;
};

/// What a program is before it has memory: graphs that went through the passes, and their plan.
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
/// required ones, no byte shared, through the printer and the parser.
ProgramOptions plain_options();

enum class RunMode : uint8_t {
  kNormal,
  kNoKernel,  ///< All of the host's work and no kernel: what a step costs the host.
};

/// A place in an entry's data: an input to write before each run, or an output to read after it.
struct DataSlot {
  void* address = nullptr;
  size_t bytes = 0;
};

class Program {
 public:
  /// `backend` must outlive it. UserError when the device cannot run the graphs or has not the
  /// memory.
  Program(ProgramGraphs graphs, Backend& backend, const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Plan& plan() const { return compiled_.plan; }
  const std::vector<Graph>& entries() const { return compiled_.graphs.entries; }
  /// One a pass and entry.
  const std::vector<PassReport>& passes() const { return compiled_.passes; }
  State& state() { return *state_; }
  const State& state() const { return *state_; }

  /// Number of the entry of that name; UserError (the nearest is named) when there is none.
  size_t entry(std::string_view name) const;
  /// UserError when the entry has no such data input or output.
  DataSlot input(size_t entry, std::string_view name) const;
  DataSlot output(size_t entry, std::string_view name) const;

  // A step: write all inputs of an entry, run it, read what is wanted. Each call queues its work
  // and allocates nothing.
  void write(DataSlot slot, const void* host);
  /// UserError, with the site, for wrong data (an index out of range), at the latest from
  /// synchronize(). While tracing is on, each launch is an event with its site's name.
  void run(size_t entry, RunMode mode = RunMode::kNormal);
  void read(DataSlot slot, void* host);
  void synchronize();

  /// Runs the entry once more, launch by launch, and returns the site of the first whose result
  /// holds NaN or an infinity, with what it is; empty when none does. For reports: it allocates.
  std::string first_not_finite(size_t entry);

 private:
  struct Launch;
  void make_launches(size_t entry);
  void set_addresses(size_t entry);
  void* address(const Place& place) const;
  DataSlot data_slot(const PlanSlot& slot) const;
  void launch(const Launch& launch);
  Tensor read_tensor(const void* address, const TensorType& type);

  Backend& backend_;
  CompiledProgram compiled_;
  std::unique_ptr<State> state_;
  DeviceMemory arena_;
  std::vector<std::vector<Launch>> launches_;  ///< By entry.
  std::unique_ptr<Stream> stream_;
};

}  // namespace ridge
