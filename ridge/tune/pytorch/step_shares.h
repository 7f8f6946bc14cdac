// The examination of a program, before anything is tried on it and after the proof: what the doctor
// says of some steps that a run of it recorded.
#pragma once

#include <optional>
#include <vector>

#include "ridge/attach/shim.h"
#include "ridge/doctor/examination.h"
#include "ridge/proof/report/summary.h"

namespace ridge {

/// Operators of a program on the CPU, as shares of a step.
struct OperatorShares {
  double images = 0;       ///< Convolutions and others whose speed depends on the layout of images.
  double products = 0;     ///< Products, and all else that could be faster in a 16-bit format.
  double allocations = 0;  ///< At most this goes into taking memory and giving it back.
  double beside = 0;       ///< Operators run on other threads than the one that steps.
};

struct StepShares {
  /// Share of a step in which the optimizer updates; nothing where a device does that.
  std::optional<double> optimizer{};
  std::optional<OperatorShares> operators{};  ///< Nothing where a device runs them.
  /// Share of a step in which its GPU does nothing; nothing where it has none.
  std::optional<double> device_idle{};
  std::vector<StepFinding> findings{};  ///< Those that are worth fixing, the first one most.
};

StepShares step_shares(const doctor::Examination& examination);

/// Reads them from the recording of the process. Returns nothing where there is none, or it cannot
/// be read.
std::optional<StepShares> recorded_shares(const attach::ProcessFacts& facts);

}  // namespace ridge
