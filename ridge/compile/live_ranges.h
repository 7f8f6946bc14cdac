// Finds, for each step of a plan, the buffers that are live in the arena: from the plan alone, as a
// reader of the plan would, and so also a check of the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "ridge/compile/plan.h"

namespace ridge {

/// Bytes of the arena that hold one value from step `begin` to step `end`, both included. Step i
/// is plan.steps[i - 1]; at step 0 inputs are written, and after the last outputs are read.
struct LiveRange {
  /// The purpose of the bytes.
  enum class Kind : uint8_t { kInput, kResult, kWorkspace };
  Kind kind = Kind::kResult;
  size_t index = 0;  ///< Number of the entry's input, or of the result of the step `begin`.
  Place place;
  int begin = 0;
  int end = 0;
};

/// All of an entry, by `begin`. A result that overwrites an operand ends that operand's range in
/// its step. Values in the state are not among them.
std::vector<LiveRange> live_ranges(const EntryPlan& entry);

/// Bytes of the arena in use at every step, 0 to steps.size() + 1: buffers of ranges that share
/// bytes count once, sizes are rounded up to the alignment.
std::vector<int64_t> live_bytes(const EntryPlan& entry, const std::vector<LiveRange>& ranges);

}  // namespace ridge
