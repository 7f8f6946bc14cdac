// Batch sizes are solved for, not found by running out of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/backend/backend.h"
#include "ridge/train/task.h"

namespace ridge {

/// If config.train.memory_limit is set and the plan (state and arena) needs more, takes the way to
/// keep within it that costs least by Op::cost, fits config.train.micro, config.train.loss_chunks
/// and task.sizes to it, and returns a line that says so. The ways are: the fewest micro-batches
/// that fit as they are; and, for asked, twice asked, four times asked, ... micro-batches, to
/// compute the loss in chunks if logits hold most, and then to recompute results
/// (ProgramOptions::memory_limit) until they fit. Empty when nothing had to change. A larger limit
/// never gives a smaller plan than a smaller limit does. UserError, with what is missing and what
/// holds the memory, when none fits; if the samples of a batch cannot be taken apart (batch norm),
/// only the second way is tried.
std::string apply_memory_limit(TrainConfig& config, Task& task, Backend& backend);

/// Whether the samples of a batch can be taken apart into micro-batches: batch norm forbids it.
bool can_use_micro_batches(const TrainConfig& config, const Task& task);

/// The fewest micro-batches a step whose plan needs at most `limit` bytes with nothing recomputed,
/// however many the configuration has; nothing where none does.
std::optional<int64_t> fewest_micro_batches(const TrainConfig& config,
                                            const Task& task,
                                            Backend& backend,
                                            int64_t limit);

/// Whether a train.memory_limit of so many bytes could be kept.
bool limit_can_be_kept(const TrainConfig& config,
                       const Task& task,
                       Backend& backend,
                       int64_t limit);

struct MicroBatch {
  int64_t samples = 0;  ///< The most whose plan keeps within the limit; 0 where not even one does.
  int64_t bytes = 0;    ///< Bytes of that plan.
  int64_t next_bytes = 0;  ///< Bytes of the plan with one sample more.
};

/// The largest micro-batch, of several in a step, whose plan (state, gradients and arena;
/// evaluation in pieces of as many samples) needs at most `limit` bytes with nothing recomputed; at
/// most 2^20 samples.
MicroBatch largest_micro_batch(const TrainConfig& config,
                               const Task& task,
                               Backend& backend,
                               int64_t limit);

}  // namespace ridge
