// What host threads did: calls of CUDA, ranges, waits for the operating system, the profiler's own.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "ridge/doctor/read/nsys_reader.h"

namespace ridge::doctor {
namespace {

// Types of NVTX_EVENTS, which have kept their numbers.
constexpr int64_t kPushPop = 59, kStartEnd = 60, kPushPopPayload = 70, kStartEndPayload = 71;

bool is_range(std::optional<int64_t> type) {
  return !type || *type == kPushPop || *type == kStartEnd || *type == kPushPopPayload ||
         *type == kStartEndPayload;
}

// nsys writes the version of the interface into the name: cudaLaunchKernel_v7000.
std::string_view without_version(std::string_view name) {
  constexpr size_t kDigits = 4;  // cuMemcpyHtoD_v2 is a name of its own
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || name.size() - at - 2 < kDigits) return name;
  for (const char c : name.substr(at + 2))
    if (c < '0' || c > '9') return name;
  return name.substr(0, at);
}

// A thread that was put on a processor, or taken off it.
struct Switch {
  int64_t thread = 0, time = 0;
  bool is_in = false, can_run = false;
  auto order() const { return std::tie(thread, time, is_in, can_run); }
};

}  // namespace

uint32_t NsysReader::host_lane(std::optional<int64_t> global_thread) {
  Lane lane;
  if (global_thread) {
    lane.process = process_in(*global_thread);
    lane.thread = thread_in(*global_thread);
    const auto name = thread_names_.find(*global_thread);
    if (name != thread_names_.end()) lane.name = name->second;
  }
  return builder_.lane(lane);
}

void NsysReader::read_thread_names() {
  static constexpr std::string_view kColumns[] = {"globalTid", "nameId"};
  each("ThreadNames", kColumns, [&](const SqliteRow& row) {
    const auto thread = row.integer(0), name = row.integer(1);
    if (!thread || !name) return;
    const auto text = texts_.find(*name);
    if (text != texts_.end()) thread_names_.emplace(*thread, text->second);
  });
}

void NsysReader::read_calls() {
  static constexpr std::string_view kColumns[] = {
      "start", "end", "globalTid", "correlationId", "nameId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_RUNTIME";
  std::set<int64_t> processes;
  each(kTable, kColumns, [&](const SqliteRow& row) {
    const auto at = times(kTable, row);
    if (!at) return;
    const auto thread = row.integer(2);
    if (thread && processes.size() < 2) processes.insert(process_in(*thread));
    if (thread) calling_threads_.insert(*thread);
    const size_t added = builder_.add(EventKind::kRuntime,
                                      builder_.text(without_version(text_of(row, 4))),
                                      host_lane(thread),
                                      at->begin,
                                      at->end - at->begin);
    builder_.set_correlation(added, correlation_of(row.integer(3)));
  });
  if (processes.size() == 1) only_process_ = *processes.begin();
}

void NsysReader::read_ranges() {
  static constexpr std::string_view kColumns[] = {
      "start", "end", "globalTid", "eventType", "text", "textId"};
  constexpr std::string_view kTable = "NVTX_EVENTS";
  each(kTable, kColumns, [&](const SqliteRow& row) {
    if (!is_range(row.integer(3))) return;
    if (row.is_null(1)) {
      builder_.warn(fmt::format("{}: ranges that are still open at the end", kTable));
      return;
    }
    const auto at = times(kTable, row);
    if (!at) return;
    std::string_view name = text_of(row, row.is_null(4) ? 5 : 4);
    // What torch.autograd.profiler.emit_nvtx writes of an operator: "aten::mm, seq = 7, ...".
    const bool is_operator = name.starts_with("aten::");
    if (is_operator) name = name.substr(0, name.find(','));
    builder_.add(is_operator ? EventKind::kOperator : EventKind::kRange,
                 builder_.text(name),
                 host_lane(row.integer(2)),
                 at->begin,
                 at->end - at->begin);
  });
}

void NsysReader::read_timed(std::string_view table, EventKind kind, std::string_view name) {
  static constexpr std::string_view kColumns[] = {"start", "end", "globalTid", "nameId"};
  each(table, kColumns, [&](const SqliteRow& row) {
    const auto at = times(table, row);
    if (!at) return;
    const std::string_view text = text_of(row, 3);
    builder_.add(kind,
                 builder_.text(text.empty() ? name : text),
                 host_lane(row.integer(2)),
                 at->begin,
                 at->end - at->begin);
  });
}

// Of threads that launch: the time in which they could have run and had no processor. That they
// waited for something else is in OSRT_API.
void NsysReader::read_scheduling() {
  static constexpr std::string_view kColumns[] = {
      "start", "start", "globalTid", "isSchedIn", "threadState"};
  constexpr std::string_view kTable = "SCHED_EVENTS";
  const Labels states = labels("ENUM_SAMPLING_THREAD_STATE");
  std::vector<Switch> switches;
  each(kTable, kColumns, [&](const SqliteRow& row) {
    const int64_t thread = row.integer(2).value_or(0);
    if (!calling_threads_.contains(thread)) return;
    const auto at = times(kTable, row);
    if (!at) return;
    const auto state = states.find(row.integer(4).value_or(-1));
    // Linux says "running" of a thread that is taken off while it has more to do.
    const bool can_run = state != states.end() && state->second.find("run") != std::string::npos;
    switches.push_back({thread, at->begin, row.integer(3).value_or(0) != 0, can_run});
  });
  std::sort(switches.begin(), switches.end(), [](const Switch& a, const Switch& b) {
    return a.order() < b.order();
  });
  const uint32_t name = switches.empty() ? 0 : builder_.text("off-cpu (runnable)");
  for (size_t i = 1; i < switches.size(); ++i) {
    const Switch &out = switches[i - 1], &in = switches[i];
    if (out.thread != in.thread || out.is_in || !in.is_in || !out.can_run) continue;
    builder_.add(EventKind::kHostWait, name, host_lane(out.thread), out.time, in.time - out.time);
  }
}

}  // namespace ridge::doctor
