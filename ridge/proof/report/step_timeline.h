// The time-line of one step: what ran when, and on which thread or stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ridge/base/trace/trace_event.h"

namespace ridge {

/// A stretch of a thread's time within a step.
struct StepLaunch {
  std::string name;     ///< "matmul", "loader wait", "12 short ones"
  std::string row;      ///< The thread: kStepRow, "loader 0"; of a device "stream 7".
  double start_ms = 0;  ///< From the start of the step.
  double duration_ms = 0;
  std::string site = {};  ///< The launched node's site; empty for a stretch that is no launch.

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("name", self.name);
    visit("row", self.row);
    visit("start_ms", self.start_ms);
    visit("duration_ms", self.duration_ms);
    visit("site", self.site);
  }
};

/// Row of the thread that runs the step.
inline constexpr const char* kStepRow = "step";

/// How names of stretches end that stand for several launches.
inline constexpr const char* kShortOnes = " short ones";

/// Most launches of a time-line, and rows that have them.
inline constexpr size_t kMostLaunches = 400, kMostRows = 12;

struct StepTimeline {
  double step_ms = 0;                ///< Wall time of the step.
  std::vector<StepLaunch> launches;  ///< Row by row, the step's first; in order within a row.
  int64_t merged = 0;                ///< Launches that are shown as part of "short ones".

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("step_ms", self.step_ms);
    visit("merged", self.merged);
    visit("launches", self.launches, kMostLaunches);
  }
};

/// The step within a trace.
struct StepWindow {
  int64_t start_ns = 0, end_ns = 0;
  int64_t thread = 0;  ///< The thread that ran the step.
};

/// The stretches within the window, cut at its ends; of nested events the outermost alone. Where
/// there are more than `most`, the shortest become one with their neighbours; threads beyond
/// kMostRows are left out. `ops` names launches by their sites.
StepTimeline make_timeline(const TraceLog& log,
                           const StepWindow& window,
                           const std::map<std::string, std::string>& ops,
                           size_t most = kMostLaunches);

}  // namespace ridge
