// The parts of build_dependencies(), in the order in which they run on a graph of all nodes.
#pragma once

#include "ridge/doctor/replay/dependency_graph.h"
#include "ridge/doctor/replay/event_waits.h"
#include "ridge/doctor/replay/timeline.h"

namespace ridge::doctor {

/// Adds what a call waits for: the call before, another thread, or a device.
void add_host_edges(const Timeline& timeline, const EventWaits& events, DependencyGraph& graph);

/// Adds what device work waits for: its call, its stream, events of other streams; and calls that
/// wait for a full queue.
void add_device_edges(const Timeline& timeline, const EventWaits& events, DependencyGraph& graph);

/// Finds how long after what allows it each node of a device, and each return of a call, starts.
void fit_lags(const Trace& trace, DependencyGraph& graph);

}  // namespace ridge::doctor
