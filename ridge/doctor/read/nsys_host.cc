#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ridge/doctor/read/nsys_tables.h"

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

class HostReader {
 public:
  HostReader(NsysTables& tables, TraceBuilder& builder) : tables_(tables), builder_(builder) {}

  void read_thread_names();
  /// Returns the process of the calls, where it is one.
  std::optional<int64_t> read_calls();
  void read_ranges();
  void read_timed(std::string_view table, EventKind kind, std::string_view name);
  void read_scheduling();

 private:
  uint32_t lane(std::optional<int64_t> global_thread);

  NsysTables& tables_;
  TraceBuilder& builder_;
  std::unordered_map<int64_t, std::string> thread_names_;  // by globalTid
  std::set<int64_t> calling_threads_;                      // globalTid, of those that call CUDA
};

uint32_t HostReader::lane(std::optional<int64_t> global_thread) {
  Lane thread;
  if (global_thread) {
    thread.process = process_in(*global_thread);
    thread.thread = thread_in(*global_thread);
    const auto name = thread_names_.find(*global_thread);
    if (name != thread_names_.end()) thread.name = name->second;
  }
  return builder_.lane(thread);
}

void HostReader::read_thread_names() {
  static constexpr std::string_view kColumns[] = {"globalTid", "nameId"};
  tables_.each("ThreadNames", kColumns, [&](const SqliteRow& row) {
    const auto thread = row.integer(0), name = row.integer(1);
    const std::string* const text = tables_.text(name);
    if (thread && text != nullptr) thread_names_.emplace(*thread, *text);
  });
}

std::optional<int64_t> HostReader::read_calls() {
  static constexpr std::string_view kColumns[] = {
      "start", "end", "globalTid", "correlationId", "nameId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_RUNTIME";
  std::set<int64_t> processes;
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    const auto at = tables_.times(kTable, row);
    if (!at) return;
    const auto thread = row.integer(2);
    if (thread && processes.size() < 2) processes.insert(process_in(*thread));
    if (thread) calling_threads_.insert(*thread);
    const size_t added = builder_.add(EventKind::kRuntime,
                                      builder_.text(without_version(tables_.text_of(row, 4))),
                                      lane(thread),
                                      at->begin,
                                      at->end - at->begin);
    builder_.set_correlation(added, correlation_of(row.integer(3)));
  });
  return processes.size() == 1 ? std::optional(*processes.begin()) : std::nullopt;
}

void HostReader::read_ranges() {
  static constexpr std::string_view kColumns[] = {
      "start", "end", "globalTid", "eventType", "text", "textId"};
  constexpr std::string_view kTable = "NVTX_EVENTS";
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    if (!is_range(row.integer(3))) return;
    if (row.is_null(1)) {
      builder_.warn(fmt::format("{}: ranges that are still open at the end", kTable));
      return;
    }
    const auto at = tables_.times(kTable, row);
    if (!at) return;
    std::string_view name = tables_.text_of(row, row.is_null(4) ? 5 : 4);
    // torch.autograd.profiler.emit_nvtx writes of an operator: "aten::mm, seq = 7, ...".
    const bool is_operator = name.starts_with("aten::");
    if (is_operator) name = name.substr(0, name.find(','));
    builder_.add(is_operator ? EventKind::kOperator : EventKind::kRange,
                 builder_.text(name),
                 lane(row.integer(2)),
                 at->begin,
                 at->end - at->begin);
  });
}

void HostReader::read_timed(std::string_view table, EventKind kind, std::string_view name) {
  static constexpr std::string_view kColumns[] = {"start", "end", "globalTid", "nameId"};
  tables_.each(table, kColumns, [&](const SqliteRow& row) {
    const auto at = tables_.times(table, row);
    if (!at) return;
    const std::string_view text = tables_.text_of(row, 3);
    builder_.add(kind,
                 builder_.text(text.empty() ? name : text),
                 lane(row.integer(2)),
                 at->begin,
                 at->end - at->begin);
  });
}

// Adds the time in which threads that launch could have run and had no processor. OSRT_API has that
// in which they waited for something else.
void HostReader::read_scheduling() {
  static constexpr std::string_view kColumns[] = {
      "start", "start", "globalTid", "isSchedIn", "threadState"};
  constexpr std::string_view kTable = "SCHED_EVENTS";
  const NsysTables::Labels states = tables_.labels("ENUM_SAMPLING_THREAD_STATE");
  std::vector<Switch> switches;
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    const int64_t thread = row.integer(2).value_or(0);
    if (!calling_threads_.contains(thread)) return;
    const auto at = tables_.times(kTable, row);
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
    builder_.add(EventKind::kHostWait, name, lane(out.thread), out.time, in.time - out.time);
  }
}

}  // namespace

std::optional<int64_t> read_host_events(NsysTables& tables, TraceBuilder& builder) {
  HostReader reader(tables, builder);
  reader.read_thread_names();
  const std::optional<int64_t> process = reader.read_calls();
  reader.read_ranges();
  reader.read_timed("OSRT_API", EventKind::kHostWait, "wait");
  reader.read_scheduling();
  reader.read_timed("PROFILER_OVERHEAD", EventKind::kOverhead, "profiler");
  reader.read_timed("CUPTI_ACTIVITY_KIND_OVERHEAD", EventKind::kOverhead, "profiler");
  return process;
}

}  // namespace ridge::doctor
