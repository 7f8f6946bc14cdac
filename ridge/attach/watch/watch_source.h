// Reads all sources on a watched program, once a call.
#pragma once

#include <sys/types.h>

#include "ridge/attach/samples/tree_samples.h"
#include "ridge/attach/shim.h"
#include "ridge/attach/watch/watch_state.h"
#include "ridge/base/machine/energy.h"
#include "ridge/base/machine/nvml.h"

namespace ridge::attach {

class WatchSource {
 public:
  /// `shim` is what the program was started with, and outlives this; null: it was not.
  explicit WatchSource(pid_t root, const ShimFolder* shim = nullptr);

  WatchInput take();

 private:
  TreeSampler tree_;
  Nvml nvml_;
  EnergyMeter energy_;
  const ShimFolder* shim_;
  int64_t started_wall_ns_ = 0;
};

/// The wall clock's time at which a process began that /proc says began `ticks` after the machine;
/// 0 where that cannot be.
int64_t wall_ns_of_ticks(int64_t ticks);

}  // namespace ridge::attach
