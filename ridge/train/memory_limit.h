// Batch sizes are solved for, not found by running out of memory.
#pragma once

#include <string>

#include "ridge/backend/backend.h"
#include "ridge/train/task.h"

namespace ridge {

/// Where config.train.memory_limit is set and the plan (state and arena) needs more: raises
/// config.train.micro to the fewest micro-batches a step that keep within it, fits task.sizes to
/// it, and returns a line that says so. Empty when nothing had to change. UserError, with the least
/// that would do, when even micro-batches of one sample need more, or when the samples of a batch
/// cannot be taken apart (batch norm).
std::string apply_memory_limit(TrainConfig& config, Task& task, Backend& backend);

}  // namespace ridge
