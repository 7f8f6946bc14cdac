// The examination of a program before anything is tried on it: what the doctor says of some steps
// that its first run recorded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/attach/shim.h"
#include "ridge/doctor/examination.h"

namespace ridge {

struct StepShares {
  double optimizer = 0;  ///< Share of a step in which the optimizer updates.
  /// Findings that are worth fixing, as verdicts of one line.
  std::vector<std::string> findings{};
};

StepShares step_shares(const doctor::Examination& examination);

/// Reads them from the recording of the process. Returns nothing where there is none, or it cannot
/// be read.
std::optional<StepShares> recorded_shares(const attach::ProcessFacts& facts);

}  // namespace ridge
