// The state of a watched program in Prometheus's text exposition format 0.0.4.
#pragma once

#include <string>

#include "ridge/attach/watch/watch_state.h"

namespace ridge::attach {

/// Devices under the names, labels and units of NVIDIA's DCGM exporter, the tree of processes under
/// the usual names of a process, the rest as ridge_... . What is not known has no line.
std::string prometheus_text(const WatchState& state);

}  // namespace ridge::attach
