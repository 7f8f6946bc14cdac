// Whether a plan says what the operating system counts.
#pragma once

#include <cstdint>
#include <string>

#include "ridge/config/config.h"

namespace ridge::test {

struct MemoryCheck {
  int64_t planned_bytes = 0;      ///< State, arena and staging.
  int64_t lower_bound_bytes = 0;  ///< State and the largest live set.
  int64_t state_bytes = 0;
  int64_t measured_bytes = 0;  ///< RssAnon, or memory of the device in use, after the steps, less
                               ///< what it was before the plan's memory was taken.
  int64_t captured_bytes = 0;  ///< Bytes of it for captured launches, beside the plan.
  int64_t micro = 0;           ///< Micro-batches a step.
  std::string limit_text;      ///< The text that apply_memory_limit returned.
  double limit_seconds = 0;    ///< How long it took.
};

/// Trains `steps` steps and measures; on the host with RLIMIT_DATA set to VmData before the plan's
/// memory is taken + 1.02 times the plan + 8 MiB: for a process of its own, which it stays with.
/// UserError where the memory does not suffice, or the configuration cannot be opened.
MemoryCheck check_memory(const TrainConfig& config, int64_t steps);

}  // namespace ridge::test
