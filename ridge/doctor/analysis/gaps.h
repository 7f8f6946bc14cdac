// Stretches in which nothing computes, and why each lasted.
#pragma once

#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// Input of the search for gaps; `launched_by` is the result of find_launches.
struct GapInput {
  const Trace& trace;
  int32_t device = -1;
  const std::vector<size_t>& launched_by;
  Intervals compute;  ///< Stretches of the whole trace in which kernels compute.
  uint32_t launching_lane = Trace::kNone;
};

/// Finds the gaps in the windows, ascending; a gap across the edge of two windows becomes two. The
/// parts of each gap add up to its length.
std::vector<Gap> find_gaps(const GapInput& input, const std::vector<Interval>& windows);

/// Finds the gaps of a program on the CPU: all of a gap is starved, up to the next operator.
std::vector<Gap> find_host_gaps(const GapInput& input, const std::vector<Interval>& windows);

/// The time of operators on all host threads, but for those that fetch data.
Intervals host_compute(const Trace& trace);

}  // namespace ridge::doctor
