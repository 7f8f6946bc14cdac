// The pictures of the report of `ridge optimize`, as SVG for use within HTML.
#pragma once

#include <span>
#include <string>

#include "ridge/tune/optimize_summary.h"
#include "ridge/tune/trial_record.h"

namespace ridge {

/// From the time of a step as it was, over what each kept trial took off it, to the proven result.
/// Times are in ms, or in shares of the first where that was not measured.
std::string waterfall(const OptimizeSummary& summary, std::span<const TrialRecord> trials);

/// One step of each variant, with a row a thread, over one axis of time. Empty where neither has a
/// time-line.
std::string step_timeline(const OptimizeSummary& summary);

/// Bytes by role, before and after, over one axis. Empty where neither has a memory map.
std::string memory_map(const OptimizeSummary& summary);

}  // namespace ridge
