// Free memory on a device that has memory of its own.
#pragma once

#include <cstdint>

#include "ridge/backend/backend.h"
#include "ridge/train/task.h"

namespace ridge {

/// Returns how many of `free_bytes` a plan may have: a fiftieth, and 1 MiB at least, is left for
/// kernels, captured graphs and the driver's own tables.
int64_t memory_for_plan(int64_t free_bytes);

/// To be called before the plan's memory is taken (ProgramOptions::before_memory). UserError where
/// the device has less than that free, with the change of the configuration that fits.
void check_device_memory(const TrainConfig& config,
                         const Task& task,
                         Backend& backend,
                         const Plan& plan);

}  // namespace ridge
