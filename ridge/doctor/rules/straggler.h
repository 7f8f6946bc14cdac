// Ranks of one run side by side: which of them the others wait for.
#pragma once

#include <optional>
#include <span>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// One rank: a trace of its own, or a device of a trace that several share.
struct RankView {
  const Trace* trace = nullptr;
  const Analysis* analysis = nullptr;
  int32_t device = -1;
  std::string name;  ///< "rank 3", "device 1"
};

/// Fills a row of R24 into `output`, charged to the first of `ranks`. Only durations are compared:
/// the last to arrive at a collective waits least, whatever the clocks say.
void find_straggler(std::span<const RankView> ranks, RuleOutput& output);

/// The rank that find_straggler() would name.
std::optional<size_t> late_rank(std::span<const RankView> ranks);

}  // namespace ridge::doctor
