// The state of a watched program as one line of JSON.
#include "ridge/attach/watch/watch_state.h"
#include "ridge/base/clock.h"
#include "ridge/base/json_writer.h"

namespace ridge::attach {
namespace {

// Writes null for numbers that are not known (below zero), so that nobody takes them for measured
// ones.
void known(JsonWriter& json, std::string_view name, double value) {
  value < 0 ? json.key(name).value(nullptr) : json.field(name, value);
}
void known(JsonWriter& json, std::string_view name, int64_t value) {
  value < 0 ? json.key(name).value(nullptr) : json.field(name, value);
}

void put_steps(JsonWriter& json, const WatchState& state) {
  json.key("steps");
  if (!state.steps) {
    json.begin_object().key("count").value(nullptr).field("why", state.why_no_steps).end_object();
    return;
  }
  const WatchedSteps& steps = *state.steps;
  json.begin_object().field("count", steps.count).field("source", steps.source);
  json.field("processes", steps.processes);
  known(json, "per_second", steps.per_second);
  known(json, "median_seconds", steps.seconds);
  known(json, "seconds_since_last", steps.since_last);
  known(json, "loader_wait_share", steps.loader_share);
  known(json, "loader_wait_share_ever", steps.loader_share_ever);
  known(json, "loader_wait_seconds", steps.loader_seconds);
  json.key("loaders").begin_array();
  for (const LoaderFacts& loader : steps.loaders) {
    json.begin_object();
    known(json, "batch", loader.batch > 0 ? loader.batch : -1);
    json.field("workers", loader.workers).field("prefetch", loader.prefetch);
    json.field("pins_memory", loader.pins_memory).field("dataset", loader.dataset).end_object();
  }
  json.end_array().end_object();
}

void put_load(JsonWriter& json, const WatchState& state) {
  const TreeLoad load = state.load.value_or(TreeLoad());
  const bool is_known = state.load.has_value();
  json.key("cpu").begin_object();
  known(json, "used_cpus", is_known ? load.cpus : -1);
  json.field("usable_cpus", state.usable_cpus);
  known(json, "quota_cpus", state.last.tree.cgroup.quota_cpus);
  known(json, "throttled_share", is_known ? load.throttled : -1);
  known(json, "main_thread_pid", is_known ? int64_t{state.main_pid} : -1);
  known(json, "main_thread_share", is_known ? load.main_cpu : -1);
  known(json, "main_thread_queue_share", is_known ? load.main_queue : -1);
  known(json, "queued_threads", is_known ? load.queue : -1);
  known(json, "busy_threads", is_known ? load.busy_threads : -1);
  known(json, "processes", is_known ? load.processes : -1);
  known(json, "threads", is_known ? load.threads : -1);
  known(json, "seconds", state.cpu_seconds);
  json.end_object();
  json.key("memory").begin_object();
  known(json, "resident_bytes", is_known ? load.rss_bytes : -1);
  json.field("peak_resident_bytes", state.peak_rss_bytes);
  known(json, "cgroup_bytes", state.last.tree.cgroup.memory_bytes);
  known(json, "cgroup_limit_bytes", state.last.tree.cgroup.memory_limit_bytes);
  json.end_object();
  json.key("disk").begin_object();
  known(json, "read_bytes_per_second", is_known ? load.read_bytes : -1);
  known(json, "written_bytes_per_second", is_known ? load.written_bytes : -1);
  known(json, "main_thread_wait_share", is_known ? load.disk_wait : -1);
  json.end_object();
}

void put_gpus(JsonWriter& json, const WatchState& state) {
  json.key("gpus").begin_array();
  for (const GpuSample& gpu : state.last.gpus) {
    json.begin_object().field("number", gpu.number).field("name", gpu.name);
    json.field("uuid", gpu.uuid);
    known(json, "kernel_time_share", gpu.kernel_time);
    known(json, "memory_time_share", gpu.memory_time);
    known(json, "memory_bytes", gpu.memory_bytes);
    known(json, "memory_total_bytes", gpu.memory_total_bytes);
    known(json, "watts", gpu.watts);
    known(json, "watts_limit", gpu.watts_limit);
    known(json, "joules", gpu.joules);
    known(json, "sm_mhz", gpu.sm_mhz);
    known(json, "most_sm_mhz", gpu.most_sm_mhz);
    known(json, "celsius", gpu.celsius);
    json.key("held_by").begin_array();
    for (const std::string& why : gpu.held_by) json.value(why);
    json.end_array().end_object();
  }
  json.end_array();
}

void put_power(JsonWriter& json, const WatchState& state) {
  json.key("power").begin_object();
  known(json, "gpu_watts", gpu_watts_of(state));
  known(json, "cpu_watts", state.cpu_watts);
  known(json, "joules_per_step", joules_per_step(state));
  json.end_object();
  json.key("cost").begin_object();
  known(json, "per_hour", state.price_per_hour);
  known(json, "so_far", cost_so_far(state));
  known(json, "per_1000_steps", cost_per_thousand_steps(state));
  json.end_object();
}

}  // namespace

std::string watch_json(const WatchState& state) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.watch/1").field("time", utc_time(state.last.wall_ns));
  json.field("program", state.program).field("pid", state.pid).field("is_over", state.is_over);
  json.field("elapsed_seconds", state.elapsed);
  put_steps(json, state);
  put_load(json, state);
  put_gpus(json, state);
  put_power(json, state);
  json.key("missing").begin_array();
  for (const std::string& what : state.last.missing) json.value(what);
  json.end_array().end_object().finish();
  return text + "\n";
}

}  // namespace ridge::attach
