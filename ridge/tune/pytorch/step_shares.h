// The examination of a program, before anything is tried on it and after the proof: what the doctor
// says of some steps that a run of it recorded.
#pragma once

#include <optional>
#include <vector>

#include "ridge/attach/shim.h"
#include "ridge/doctor/examination.h"
#include "ridge/proof/report/summary.h"

namespace ridge {

struct StepShares {
  double optimizer = 0;  ///< Share of a step in which the optimizer updates.
  /// Share of a step in which its GPU does nothing; nothing where it has none.
  std::optional<double> device_idle{};
  std::vector<StepFinding> findings{};  ///< Those that are worth fixing, the first one most.
};

StepShares step_shares(const doctor::Examination& examination);

/// Reads them from the recording of the process. Returns nothing where there is none, or it cannot
/// be read.
std::optional<StepShares> recorded_shares(const attach::ProcessFacts& facts);

}  // namespace ridge
