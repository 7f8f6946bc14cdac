// What waits for what in the steady steps of a trace: the model that is replayed and edited.
//
// A node starts when all that it comes after allow it: at max(start or end of another + lag).
// Lags are fitted so that what the graph explains is reproduced to the nanosecond, and are bounded,
// so that a wait which it cannot explain shows as an error of the replay, not as a lag.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

enum class EdgeKind : uint8_t {
  kThread,    ///< The next call of a host thread; its lag is what the program thinks in between.
  kHandOver,  ///< Another host thread goes on where one has stopped, and back.
  kLaunch,    ///< From the start of a call to the device work that it issued.
  kStream,    ///< Device work of a stream, one after another.
  kEvent,     ///< A stream waits for what another had been given when an event was recorded.
  kAwait,     ///< A call returns when device work has ended.
  kQueue,     ///< A call returns when the queue of launches has room again.
};

/// An edge into the node that holds it.
struct Edge {
  uint32_t from = 0;
  EdgeKind kind = EdgeKind::kThread;
  bool from_end = true;  ///< Else from the start of `from`.
  int64_t lag_ns = 0;
};

struct Node {
  enum class Kind : uint8_t { kOrigin, kCall, kReturn, kDevice, kMark };
  Kind kind = Kind::kOrigin;
  int32_t step = -1;  ///< Of the graph's; -1: was under way when the first began.
  uint32_t lane = Trace::kNone;
  size_t row = 0;        ///< Of the trace; a call that may wait has two nodes of one row.
  int64_t start_ns = 0;  ///< Measured.
  int64_t duration_ns = 0;
  std::vector<Edge> after = {};
};

struct DependencyGraph {
  std::vector<Node> nodes;                       ///< Edges go from earlier ones to later ones only.
  std::vector<Interval> windows;                 ///< Steps, one following the other.
  std::unordered_map<size_t, uint32_t> node_of;  ///< By row: call, or device work.
  std::unordered_map<size_t, uint32_t> return_of;  ///< By row: where a call that may wait returns.
  size_t contradictions = 0;  ///< Edges that the times of the trace rule out, left out.

  /// The node that a call of the host ends with.
  uint32_t last_of(size_t row) const;
  /// When, by the trace, the node that an edge comes from had started or ended. Nanoseconds.
  int64_t measured(const Edge& edge) const;
  /// Adds an edge without a lag. False: the node it comes from is no earlier one, a contradiction.
  bool add_edge(uint32_t from, uint32_t to, EdgeKind kind, bool from_end = true);
};

/// Of at most the last twelve steady steps that follow each other. Empty: no step, no device work,
/// or more events than are worth it (two million).
std::optional<DependencyGraph> build_dependencies(const Trace& trace, const Analysis& analysis);

}  // namespace ridge::doctor
