// nsys exports in SQLite: clock, devices, ranks and warnings. nsys_host.cc and nsys_device.cc read
// the events.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_set>

#include "ridge/base/error.h"
#include "ridge/doctor/read/nsys_tables.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr size_t kMaxWarningText = 300;

// The first number of a text such as "1200 CUDA events were dropped"; 1 where there is none.
int64_t count_in(std::string_view text) {
  constexpr int64_t kMost = int64_t{1} << 40;
  size_t at = 0;
  while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) == 0) ++at;
  int64_t count = 0;
  for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at)
    count = std::min(kMost, count * 10 + (text[at] - '0'));
  return std::max<int64_t>(count, 1);
}

bool tells_of_loss(std::string_view text) {
  static constexpr std::string_view kWords[] = {
      "dropped", "lost", "might not have been collected", "not all "};
  return holds_any(text, kWords);
}

void read_session(NsysTables& tables, Trace& trace) {
  static constexpr std::string_view kColumns[] = {"utcEpochNs"};
  tables.each("TARGET_INFO_SESSION_START_TIME", kColumns, [&](const SqliteRow& row) {
    const int64_t start = row.integer(0).value_or(0);
    if (start > 0 && trace.base_ns == 0) trace.base_ns = start;
  });
}

// Returns the numbers by which processes know the devices.
GpuNumbers read_devices(NsysTables& tables, Trace& trace) {
  static constexpr std::string_view kGpu[] = {
      "id", "name", "smCount", "computeMajor", "computeMinor", "totalMemory"};
  std::map<int64_t, Device> devices;
  tables.each("TARGET_INFO_GPU", kGpu, [&](const SqliteRow& row) {
    const int64_t id = row.integer(0).value_or(-1);
    if (id < 0 || id >= kMaxDevices) return;
    devices.emplace(id,
                    Device{.number = static_cast<int32_t>(id),
                           .name = std::string(row.text(1)),
                           .multiprocessors = positive_int32(row.integer(2)),
                           .major = positive_int32(row.integer(3)),
                           .minor = positive_int32(row.integer(4)),
                           .memory_bytes = std::max<int64_t>(0, row.integer(5).value_or(0))});
  });
  for (auto& [id, device] : devices) trace.devices.push_back(std::move(device));
  GpuNumbers gpu_of;
  static constexpr std::string_view kOrdinal[] = {"pid", "cudaId", "gpuId"};
  tables.each("TARGET_INFO_CUDA_DEVICE", kOrdinal, [&](const SqliteRow& row) {
    const auto process = row.integer(0), ordinal = row.integer(1), gpu = row.integer(2);
    if (process && ordinal && gpu) gpu_of[{*process, *ordinal}] = *gpu;
  });
  return gpu_of;
}

void read_diagnostics(NsysTables& tables, TraceBuilder& builder, Trace& trace) {
  static constexpr std::string_view kColumns[] = {"severity", "text"};
  constexpr int64_t kInfo = 1;  // 2: a warning, 3: an error
  const NsysTables::Labels severities = tables.labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL");
  tables.each("DIAGNOSTIC_EVENT", kColumns, [&](const SqliteRow& row) {
    const int64_t severity = row.integer(0).value_or(kInfo);
    const auto label = severities.find(severity);
    const bool is_info = label == severities.end()
                             ? severity <= kInfo
                             : label->second.find("info") != std::string::npos;
    const std::string_view text = row.text(1);
    if (is_info || text.empty()) return;
    builder.warn(fmt::format("nsys: {}", text.substr(0, kMaxWarningText)));
    if (tells_of_loss(text)) trace.dropped += count_in(text);
  });
}

void read_ranks(NsysTables& tables, Trace& trace) {
  static constexpr std::string_view kColumns[] = {"rank"};
  constexpr int64_t kMost = 1 << 24;
  std::set<int64_t> ranks;
  tables.each("MPI_RANKS", kColumns, [&](const SqliteRow& row) {
    const auto rank = row.integer(0);
    if (rank && *rank >= 0 && *rank < kMost) ranks.insert(*rank);
  });
  if (ranks.size() == 1) trace.rank = static_cast<int32_t>(*ranks.begin());
}

// Every process counts its calls from 1.
void separate_processes(Trace& trace) {
  std::map<int64_t, int64_t> processes;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.correlation[row] >= 0) processes.emplace(trace.lane_of(row).process, 0);
  if (processes.size() < 2) return;
  int64_t next = 0;
  for (auto& [process, number] : processes) number = next++;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.correlation[row] < 0) continue;
    const int64_t offset = processes[trace.lane_of(row).process] << 32;
    trace.correlation[row] += offset;
    if (trace.kind[row] != EventKind::kSynchronization) continue;
    Sync& sync = trace.syncs[trace.detail[row]];
    if (sync.waits_on_correlation >= 0) sync.waits_on_correlation += offset;
  }
}

// nsys does not say whether a copy was asynchronous; the call that asked for it has it in its name.
void find_blocking_transfers(Trace& trace) {
  std::unordered_set<int64_t> blocking;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kRuntime || trace.correlation[row] < 0) continue;
    const std::string_view name = trace.name_text(row);
    const bool is_transfer = name.starts_with("cudaMem") || name.starts_with("cuMem");
    if (is_transfer && name.find("Async") == std::string_view::npos)
      blocking.insert(trace.correlation[row]);
  }
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kCopy || trace.kind[row] == EventKind::kSet)
      if (blocking.contains(trace.correlation[row]))
        trace.transfers[trace.detail[row]].is_async = false;
}

void read_tables(SqliteFile& file, Trace& trace) {
  TraceBuilder builder(trace);
  if (!file.trouble().empty())
    builder.warn(fmt::format("the list of tables ends early: {}", file.trouble()));
  for (const std::string& each : file.refused())
    builder.warn(fmt::format("'{}' is a view or a virtual table: not read", each));
  if (file.is_truncated()) {
    trace.is_truncated = true;
    builder.warn("the file is shorter than its header says");
  }
  NsysTables tables(file, builder);
  read_session(tables, trace);
  const GpuNumbers gpu_of = read_devices(tables, trace);
  read_ranks(tables, trace);
  const std::optional<int64_t> process = read_host_events(tables, builder);
  read_device_events(tables, builder, gpu_of, process);
  read_diagnostics(tables, builder, trace);
  separate_processes(trace);
  find_blocking_transfers(trace);
}

}  // namespace

Trace read_nsys(const std::string& path) {
  Trace trace;
  trace.recorder = "nsys";
  trace.source = path;
  SqliteFile file(path);
  read_tables(file, trace);
  if (trace.size() == 0) {
    std::string why = "none of its tables is one of an nsys export";
    if (!trace.warnings.empty()) why = trace.warnings.front().text;
    throw UserError(fmt::format("cannot read '{}': it holds no events: {}", path, why),
                    "export with: nsys export --type sqlite REPORT");
  }
  trace.sort();
  return trace;
}

}  // namespace ridge::doctor
