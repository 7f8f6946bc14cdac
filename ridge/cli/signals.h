// SIGINT and SIGTERM while a run can save itself.
#pragma once

#include <csignal>

namespace ridge {

/// While it lives, the first SIGINT or SIGTERM asks for a stop (base/stop.h) and a second one ends
/// the process at once with 130 or 143. A signal that was ignored before stays ignored, as nohup
/// wants it. Not for more than one object at a time.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

 private:
  struct sigaction before_[2];
};

}  // namespace ridge
