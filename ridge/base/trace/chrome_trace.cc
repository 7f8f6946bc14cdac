#include "ridge/base/trace/chrome_trace.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "ridge/base/json_writer.h"

namespace ridge {
namespace {

// The row in which viewers draw an event.
struct Lane {
  int64_t process;
  int64_t thread;
  auto operator<=>(const Lane&) const = default;
};

Lane lane_of(const TraceEvent& event, int64_t process) {
  if (event.thread == 0) return {0, event.stream};
  return {process, event.thread};
}

void write_event(JsonWriter& json, const TraceEvent& event, Lane lane, int64_t base_ns) {
  json.begin_object();
  json.field("ph", "X").field("cat", event.category).field("name", event.name);
  json.field("pid", lane.process).field("tid", lane.thread);
  json.key("ts").decimal(event.start_ns - base_ns, 3);
  json.key("dur").decimal(event.duration_ns, 3);
  if (event.stream >= 0 || event.correlation || !event.args.empty()) {
    json.key("args").begin_object();
    if (event.stream >= 0) json.field("stream", event.stream);
    if (event.correlation) json.field("correlation", *event.correlation);
    for (const auto& [name, arg] : event.args)
      std::visit([&json, &key = name](const auto& v) { json.field(key, v); }, arg);
    json.end_object();
  }
  json.end_object();
}

void write_name(JsonWriter& json, const char* kind, Lane lane, const std::string& name) {
  json.begin_object().field("ph", "M").field("name", kind);
  json.field("pid", lane.process).field("tid", lane.thread).field("ts", 0);
  json.key("args").begin_object().field("name", name).end_object();
  json.end_object();
}

void write_device(JsonWriter& json, const TraceDevice& device) {
  json.begin_object().field("id", device.number).field("name", device.name);
  json.field("totalGlobalMem", device.memory_bytes).field("numSms", device.multiprocessors);
  json.field("computeMajor", device.major).field("computeMinor", device.minor).end_object();
}

}  // namespace

void write_chrome_trace(const TraceLog& log, std::ostream& out) {
  const int64_t process = getpid();
  int64_t base_ns = log.events.empty() ? 0 : log.events.front().start_ns;
  for (const TraceEvent& event : log.events) base_ns = std::min(base_ns, event.start_ns);
  JsonWriter json(out);
  json.begin_object();
  json.field("schemaVersion", 1);
  json.field("displayTimeUnit", "ms");
  json.field("baseTimeNanoseconds", base_ns + log.wall_minus_steady_ns);
  json.field("droppedEvents", log.dropped);
  if (!log.devices.empty()) {
    json.key("deviceProperties").begin_array();
    for (const TraceDevice& device : log.devices) write_device(json, device);
    json.end_array();
  }
  json.key("traceEvents").begin_array();
  std::set<Lane> lanes;
  for (const TraceEvent& event : log.events) lanes.insert(lane_of(event, process));
  write_name(json, "process_name", {process, 0}, "ridge");
  if (!lanes.empty() && lanes.begin()->process == 0)
    write_name(json, "process_name", {0, 0}, "device");
  for (const Lane& lane : lanes) {
    const auto named = log.thread_names.find(lane.thread);
    if (lane.process == 0)
      write_name(json, "thread_name", lane, fmt::format("stream {}", lane.thread));
    else if (named != log.thread_names.end())
      write_name(json, "thread_name", lane, named->second);
  }
  for (const TraceEvent& event : log.events)
    write_event(json, event, lane_of(event, process), base_ns);
  json.end_array();
  json.end_object();
  json.finish();
}

}  // namespace ridge
