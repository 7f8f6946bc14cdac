// `ridge inspect CONFIG` prints these facts about the program that `ridge train CONFIG` would run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/cli/inspect/compiled_facts.h"
#include "ridge/cli/inspect/inspect.h"
#include "ridge/graph/batch_flow.h"
#include "ridge/run/tuning.h"
#include "ridge/train/memory_limit.h"
#include "ridge/train/task.h"

namespace ridge {

struct ProgramFacts : CompiledFacts {
  TrainConfig config;
  Task task;
  /// The line that apply_memory_limit() returns; empty: it changed nothing.
  std::string memory_limit = {};
  /// Nothing without a limit, or if micro-batches are not possible.
  std::optional<MicroBatch> largest_micro_batch = {};
  int64_t parameters = 0, parameter_bytes = 0;
  int64_t batch_bytes = 0;  ///< Bytes of one batch of data, of which the loader keeps some ready.
  BatchReport batch = {};   ///< Whether micro-batches add up to the same sums.
};

/// Opens the task and compiles the program as train() does, but takes no memory for it. UserError
/// as train() gives.
ProgramFacts inspect_program(const TrainConfig& config, Tuning& tuning);

/// "uniform 0.125", "normal 0.02", "1".
std::string initial_text(const Initializer& init);

std::string program_text(const ProgramFacts& facts, const InspectOptions& options);
/// One line of JSON.
std::string program_json(const ProgramFacts& facts, const InspectOptions& options);

}  // namespace ridge
