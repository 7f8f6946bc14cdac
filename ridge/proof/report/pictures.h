// The pictures of the report of `ridge optimize`.
#pragma once

#include <span>

#include "ridge/base/html/picture.h"
#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// From the time of a step as it was, over what each kept trial took off it, to the proven result.
/// Times are in ms, or in shares of the first where that was not measured.
Picture waterfall(const OptimizeSummary& summary, std::span<const TrialRecord> trials);

/// One step of each variant, with a row a thread, over one axis of time; of the first variant alone
/// where nothing became faster. Empty where there is no time-line.
Picture step_timeline(const OptimizeSummary& summary);

/// Bytes by role of the same variants, over one axis. Empty where there is no memory map.
Picture memory_map(const OptimizeSummary& summary);

}  // namespace ridge
