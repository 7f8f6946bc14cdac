// Stretches in which nothing computes, and why each lasted.
#pragma once

#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// What the gaps of a trace are found in; `launched_by` as find_launches gives it.
struct GapInput {
  const Trace& trace;
  int32_t device = -1;
  const std::vector<size_t>& launched_by;
  Intervals compute;  ///< Of the whole trace.
  uint32_t launching_lane = Trace::kNone;
};

/// Of the windows, ascending; one that lies across the edge of two windows is two. The parts of
/// each add up to its length.
std::vector<Gap> find_gaps(const GapInput& input, const std::vector<Interval>& windows);

/// The same of a program on the CPU: all of a gap is starved, up to the next operator.
std::vector<Gap> find_host_gaps(const GapInput& input, const std::vector<Interval>& windows);

/// The time of operators on all host threads, but for those that fetch data.
Intervals host_compute(const Trace& trace);

}  // namespace ridge::doctor
