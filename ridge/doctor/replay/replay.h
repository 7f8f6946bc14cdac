// Replays the steady steps of a trace, as they were and as they would be after a change.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/doctor/findings/finding.h"
#include "ridge/doctor/replay/dependency_graph.h"

namespace ridge::doctor {

/// When each node starts: at the latest of what it comes after. Nanoseconds, as Trace::start_ns.
std::vector<int64_t> replay(const DependencyGraph& graph);

/// Milliseconds from the end of one step's work to that of the next, in the mean. Of three or more
/// steps the first half, four at most, is left out: what was issued before lets it begin as it was.
double step_ms(const DependencyGraph& graph, std::span<const int64_t> starts);

/// A larger error of the replay, as a share of the step, makes predictions worthless.
inline constexpr double kMostReplayError = 0.05;

/// Measured and replayed length of a step.
struct ReplayedStep {
  double measured_ms = 0, replayed_ms = 0;
  double error() const;  ///< |replayed - measured| / measured; 1 where nothing was measured.
};
ReplayedStep replayed_step(const DependencyGraph& graph);

/// The steady steps of a trace, and their replay as they were.
struct Replay {
  DependencyGraph graph;
  ReplayedStep step;
};

/// Sets Analysis::replay and replay_error; neither where there is nothing to replay.
void replay_steps(const Trace& trace, Analysis& analysis);
/// An analysis with both.
Analysis analyse_and_replay(const Trace& trace);

/// Changes to a copy of the graph; several together are one change.
class WhatIf {
 public:
  explicit WhatIf(DependencyGraph graph) : graph_(std::move(graph)) {}

  /// The host goes on instead of waiting in this call. False: the call waited for nothing.
  bool drop_wait(size_t call_row);
  /// The host's work within `at` is launched as captured graphs: one call a step, and one more
  /// after each wait; a microsecond a node. Host time within `kept` stays.
  void capture(Interval at, const Intervals& kept = {});
  /// The copy goes on a stream of its own (one for each direction), and holds neither the host nor
  /// what follows it. `after_producer`: it still waits for the work before it, whose result it
  /// takes.
  void move_to_own_stream(size_t copy_row, bool after_producer);
  /// The work takes this long.
  void set_duration(size_t device_row, int64_t duration_ns);
  void scale_duration(size_t device_row, double factor);
  /// The work of these, which were issued one after the other, is done by the first of them, in
  /// this time; the others and their calls take none.
  void fuse(std::span<const size_t> device_rows, int64_t duration_ns);
  /// The host's own time in the call is cut to at most this, and the call waits for nothing.
  void shorten_call(size_t call_row, int64_t duration_ns);
  /// Host time between calls within these stretches is removed.
  void remove_host_time(const Intervals& stretches);

  double step_ms() const;
  const DependencyGraph& graph() const { return graph_; }

 private:
  void index_followers();
  void release(uint32_t follower, uint32_t copy, const std::vector<Edge>& before);

  DependencyGraph graph_;
  std::vector<std::vector<uint32_t>> followers_;  ///< By node; filled when first asked for.
  std::optional<uint32_t> last_moved_[2];
};

/// The gain of a step of `before` that is predicted to take `after_ms`, give or take the error of
/// the replay and of the model (a share of the gain), and never beyond the ceiling.
Gain gain_between(const ReplayedStep& before,
                  double after_ms,
                  double ceiling,
                  double model_error = 0.3);

}  // namespace ridge::doctor
