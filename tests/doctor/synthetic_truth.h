// Finds for a simulated trace what each moment without compute was for.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/doctor/synthetic_trace.h"

namespace ridge::doctor::synthetic {

/// Work of the device.
struct Task {
  Interval at;
  bool computes = false, is_copy = false;
  int64_t call_start = 0;
  std::vector<size_t> after = {};  ///< Tasks, by their place in the list of all.
};

/// Time that the host spent on one thing.
struct HostStretch {
  Interval at;
  HostCause cause;
  bool drains = false;  ///< It returned when device work had ended.
};

/// Completes the steps, of which only the intervals are known. `host_time` is ascending.
void find_truth(const std::vector<Task>& tasks,
                const std::vector<HostStretch>& host_time,
                std::vector<StepTruth>& steps);

}  // namespace ridge::doctor::synthetic
