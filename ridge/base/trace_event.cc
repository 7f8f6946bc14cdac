#include "ridge/base/trace_event.h"

#include <algorithm>
#include <tuple>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// The open events of one thread and stream, the innermost last, and how far time is given away.
struct Track {
  std::vector<size_t> open;
  int64_t cursor = 0;
};

// Gives the time up to `until` to the innermost open events.
void advance(Track& track,
             int64_t until,
             const std::vector<TraceEvent>& events,
             std::vector<int64_t>& self) {
  while (!track.open.empty() && track.cursor < until) {
    const size_t innermost = track.open.back();
    const int64_t end = std::min(events[innermost].end_ns(), until);
    if (end > track.cursor) {
      self[innermost] += end - track.cursor;
      track.cursor = end;
    }
    if (events[innermost].end_ns() <= track.cursor) track.open.pop_back();
  }
}

// Self times; calls begin(i, open) for each event i with those that are open when it begins.
template <typename Begin>
std::vector<int64_t> sweep(const std::vector<TraceEvent>& events, Begin begin) {
  std::vector<int64_t> self(events.size());
  std::map<std::pair<int64_t, int32_t>, Track> tracks;
  for (size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& event = events[i];
    check_internal(i == 0 || events[i - 1].start_ns <= event.start_ns,
                   "[trace] events are not sorted at '{}'",
                   event.name);
    Track& track = tracks[{event.thread, event.stream}];
    advance(track, event.start_ns, events, self);
    track.cursor = event.start_ns;
    begin(i, track.open);
    track.open.push_back(i);
  }
  for (auto& [key, track] : tracks) advance(track, INT64_MAX, events, self);
  return self;
}

}  // namespace

void sort_events(std::vector<TraceEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.start_ns, -a.duration_ns, a.thread, a.stream) <
           std::tuple(b.start_ns, -b.duration_ns, b.thread, b.stream);
  });
}

std::vector<int64_t> self_times(const std::vector<TraceEvent>& events) {
  return sweep(events, [](size_t, const std::vector<size_t>&) {});
}

std::vector<NameTotal> total_by_name(const std::vector<TraceEvent>& events) {
  std::map<std::pair<std::string, std::string>, NameTotal> totals;
  const auto total_of = [&](const TraceEvent& event) -> NameTotal& {
    return totals[{event.name, event.category}];
  };
  const std::vector<int64_t> self = sweep(events, [&](size_t i, const std::vector<size_t>& open) {
    const TraceEvent& event = events[i];
    const bool recursive = std::any_of(open.begin(), open.end(), [&](size_t outer) {
      return events[outer].end_ns() > event.start_ns && events[outer].name == event.name &&
             events[outer].category == event.category;
    });
    NameTotal& total = total_of(event);
    ++total.count;
    if (!recursive) total.inclusive_ns += event.duration_ns;
  });
  for (size_t i = 0; i < events.size(); ++i) total_of(events[i]).self_ns += self[i];
  std::vector<NameTotal> sorted;
  for (auto& [key, total] : totals) {
    std::tie(total.name, total.category) = key;
    sorted.push_back(std::move(total));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const NameTotal& a, const NameTotal& b) {
    return a.self_ns > b.self_ns;
  });
  return sorted;
}

}  // namespace ridge
