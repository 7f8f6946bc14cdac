#include "ridge/base/trace/trace_event.h"

#include <algorithm>
#include <tuple>

namespace ridge {

void sort_events(std::vector<TraceEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.start_ns, -a.duration_ns, a.thread, a.stream) <
           std::tuple(b.start_ns, -b.duration_ns, b.thread, b.stream);
  });
}

}  // namespace ridge
