// What host threads did, and which of it kept the device waiting.
#pragma once

#include <array>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// Time by cause.
using CauseTimes = std::array<int64_t, kHostCauses>;

/// Who could have ended a stretch in which the device starved.
struct Suspects {
  uint32_t launcher = Trace::kNone;  ///< The thread of the launch that ended it.
  uint32_t other = Trace::kNone;     ///< That of the work before it, for which it may have waited.
};

class HostBlame {
 public:
  HostBlame(const Trace& trace, const std::vector<size_t>& launched_by);

  /// What the host did in `part` of a stretch in which the device starved: adds up to
  /// part.length(). Time after a call that had blocked until the stretch began, up to the next
  /// launch, is the call's, but for what has a cause of its own.
  CauseTimes blame(Interval starved, Interval part, Suspects suspects) const;

 private:
  struct Blocking {
    Interval at;
    HostCause cause;
  };
  struct Thread {
    std::array<Intervals, kHostCauses> by_cause;  ///< Apart: at one time the gravest counts.
    Intervals frames;                ///< Of the interpreter, with none of these in them.
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
