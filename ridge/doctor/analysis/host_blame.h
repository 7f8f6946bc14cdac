// Attributes a device's starvation to the work of host threads.
#pragma once

#include <array>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// Time by cause.
using CauseTimes = std::array<int64_t, kHostCauses>;

/// Threads that could have ended a stretch in which the device starved.
struct Suspects {
  uint32_t launcher = Trace::kNone;  ///< The thread of the launch that ended it.
  /// The thread of the work before it, for which the launcher may have waited.
  uint32_t other = Trace::kNone;
};

class HostBlame {
 public:
  HostBlame(const Trace& trace, const std::vector<size_t>& launched_by);

  /// Divides the length of `part`, of a stretch in which the device starved, among the host's
  /// activities. Time after a call that had blocked until the stretch began, up to the next launch,
  /// is charged to that call, except where another cause is known.
  CauseTimes blame(Interval starved, Interval part, Suspects suspects) const;

 private:
  struct Blocking {
    Interval at;
    HostCause cause;
  };
  struct Thread {
    std::array<Intervals, kHostCauses> by_cause;  ///< Apart: at one time the gravest counts.
    /// The interpreter's frames, without the stretches of by_cause.
    Intervals frames;
    std::vector<Blocking> blocking;  ///< By their ends.
  };
  void add_causes(const std::vector<size_t>& launched_by);
  static void sort_out(Thread& thread);
  const Blocking* drained_by(uint32_t lane, Interval starved) const;

  const Trace& trace_;
  std::vector<Thread> threads_;  ///< By lane.
  Intervals recorder_loads_;     ///< Code that the recorder saw loaded, on no thread of its own.
};

}  // namespace ridge::doctor
