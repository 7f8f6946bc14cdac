// Whether issuing work takes longer than doing it: what R03 says, and R18 stands on.
#pragma once

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

struct LaunchBound {
  double cost_ms = 0;      ///< A step: starved while operators were issued, and launching.
  double share = 0;        ///< Share of the step.
  double queue_depth = 0;  ///< Median at a launch, itself counted.
  /// Share of the step that launching threads spend on operators and calls.
  double issuing_share = 0;
  double kernels = 0;  ///< A step.
  Intervals at;
  bool is_so() const { return share >= 0.10 && queue_depth <= 1 && issuing_share > 0.5; }
};
LaunchBound launch_bound(const Trace& trace, const Analysis& analysis);

/// Milliseconds a step of kernels of 10 us or more whose blocks are fewer than the device's
/// multiprocessors; 0 where those are not known. Communication is small on purpose.
double underfilled_ms(const Trace& trace, const Analysis& analysis);

}  // namespace ridge::doctor
