// The one form that every trace takes: what Ridge records of itself, and what it reads from others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ridge {

using TraceValue = std::variant<int64_t, double, std::string>;

/// A stretch of time on one thread, or on one stream of a device.
struct TraceEvent {
  std::string name;
  std::string category;
  int64_t start_ns = 0;  // now_ns() where Ridge recorded it
  int64_t duration_ns = 0;
  int64_t thread = 0;   // the system's thread id; 0 for work on a device that no thread did
  int32_t stream = -1;  // -1 for none
  std::optional<uint64_t> correlation;  // joins a launch with what it launched
  std::vector<std::pair<std::string, TraceValue>> args;

  int64_t end_ns() const { return start_ns + duration_ns; }
};

/// A device whose work is in a recording.
struct TraceDevice {
  int32_t number = 0;  // the argument "device" of its events
  std::string name;
  int32_t major = 0, minor = 0;  // compute capability
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
};

/// The result of a recording.
struct TraceLog {
  std::vector<TraceEvent> events;  // by start; of those that start together the longest first
  std::map<int64_t, std::string> thread_names;
  std::vector<TraceDevice> devices;
  int64_t dropped = 0;               // events that found their buffer full
  std::vector<std::string> notes;    // parts that could not be recorded, and why; a sentence each
  int64_t wall_minus_steady_ns = 0;  // add to start_ns for nanoseconds since 1970
};

/// Sorts as TraceLog::events are.
void sort_events(std::vector<TraceEvent>& events);

}  // namespace ridge
