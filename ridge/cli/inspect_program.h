// `ridge inspect CONFIG` prints these facts about the program that `ridge train CONFIG` would run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/cli/inspect.h"
#include "ridge/graph/batch_flow.h"
#include "ridge/graph/summary.h"
#include "ridge/run/tuning.h"
#include "ridge/train/memory_limit.h"
#include "ridge/train/task.h"

namespace ridge {

/// A buffer that is live where an entry needs the most memory.
struct PeakBuffer {
  std::string site = {};  ///< Site of the node that made it, or "input NAME".
  std::string op = {};    ///< The op that made it, or "input", or "OP workspace".
  std::string type = {};  ///< Empty for a workspace.
  int64_t offset = 0, bytes = 0;
  int begin = 0, end = 0;  ///< Steps, as in LiveRange.
};

struct EntryFacts {
  std::string name;
  size_t nodes = 0, launches = 0;
  GraphSummary summary;
  int64_t peak_bytes = 0, lower_bound_bytes = 0;  ///< Bytes of the arena.
  std::vector<int64_t> live = {};                 ///< Bytes at every step.
  int peak_step = 0;                              ///< The first with the most live bytes.
  std::vector<PeakBuffer> at_peak = {};           ///< Largest first.
  std::vector<NodeTimes> times = {};              ///< By step; empty unless they are to be shown.
  std::vector<bool> other_bits = {};              ///< By step: has_other_bits() of the pick.
};

struct ProgramFacts {
  TrainConfig config;
  Task task;
  /// The line that apply_memory_limit() returns; empty: it changed nothing.
  std::string memory_limit = {};
  /// Nothing without a limit, or if micro-batches are not possible.
  std::optional<MicroBatch> largest_micro_batch = {};
  std::vector<std::string> notes = {};  ///< Notes of the backend on what it does without.
  CompiledProgram program = {};
  std::vector<EntryFacts> entries = {};
  int64_t parameters = 0, parameter_bytes = 0;
  int64_t batch_bytes = 0;  ///< Bytes of one batch of data, of which the loader keeps some ready.
  BatchReport batch = {};   ///< Whether micro-batches add up to the same sums.
};

/// Opens the task and compiles the program as train() does, but takes no memory for it. UserError
/// as train() gives.
ProgramFacts inspect_program(const TrainConfig& config, Tuning& tuning);

/// The entry that needs the largest arena.
const EntryFacts& largest_entry(const ProgramFacts& facts);

/// Bytes of the state by role; 0 where a role has no buffer.
int64_t role_bytes(const Plan& plan, StateRole role);
inline constexpr StateRole kRoles[] = {StateRole::kParameter,
                                       StateRole::kOptimizer,
                                       StateRole::kGradient,
                                       StateRole::kStatistic,
                                       StateRole::kPacked,
                                       StateRole::kScaler};

/// "uniform 0.125", "normal 0.02", "1".
std::string initial_text(const Initializer& init);

std::string program_text(const ProgramFacts& facts, const InspectOptions& options);
/// One line of JSON.
std::string program_json(const ProgramFacts& facts, const InspectOptions& options);

}  // namespace ridge
