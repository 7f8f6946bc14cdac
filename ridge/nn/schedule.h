// Learning rates over the steps.
#pragma once

#include <cstdint>

#include "ridge/nn/options.h"

namespace ridge::nn {

/// UserError when a value is out of range or the kind unknown.
void check_options(const ScheduleOptions& options);

/// The factor on the peak learning rate at `step` (from 0) of `total_steps`: (step + 1) / warmup
/// during the warm-up; then 1 (constant), or a half cosine from 1 at the end of the warm-up down to
/// final_ratio at step total_steps - 1, where it stays.
double schedule_factor(const ScheduleOptions& options, int64_t step, int64_t total_steps);

}  // namespace ridge::nn
