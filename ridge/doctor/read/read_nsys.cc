// nsys exports in SQLite: names, clock, devices and warnings; nsys_host.cc and nsys_device.cc read
// the events.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_set>

#include "ridge/base/error.h"
#include "ridge/doctor/read/nsys_reader.h"
#include "ridge/doctor/read/read_trace.h"

namespace ridge::doctor {
namespace {

// Beyond it neither doubles nor JSON would hold a time exactly.
constexpr int64_t kMaxTime = int64_t{1} << 53;
constexpr size_t kMaxWarningText = 300;

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

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
  const std::string lower = in_lower_case(text);
  for (const char* word : {"dropped", "lost", "might not have been collected", "not all "})
    if (lower.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

void NsysReader::read() {
  if (!file_.trouble().empty())
    builder_.warn(fmt::format("the list of tables ends early: {}", file_.trouble()));
  for (const std::string& each : file_.refused())
    builder_.warn(fmt::format("'{}' is a view or a virtual table: not read", each));
  if (file_.is_truncated()) {
    trace_.is_truncated = true;
    builder_.warn("the file is shorter than its header says");
  }
  read_texts();
  read_session();
  read_devices();
  read_ranks();
  read_thread_names();
  read_calls();
  read_ranges();
  read_timed("OSRT_API", EventKind::kHostWait, "wait");
  read_scheduling();
  read_timed("PROFILER_OVERHEAD", EventKind::kOverhead, "profiler");
  read_timed("CUPTI_ACTIVITY_KIND_OVERHEAD", EventKind::kOverhead, "profiler");
  read_kernels();
  read_graphs();
  read_copies();
  read_sets();
  read_event_records();
  read_synchronizations();
  read_diagnostics();
  separate_processes();
  find_blocking_transfers();
}

void NsysReader::each(std::string_view table,
                      Columns columns,
                      FunctionRef<void(const SqliteRow&)> row) {
  const std::string trouble = file_.scan(table, columns, row);
  if (!trouble.empty()) builder_.warn(fmt::format("{} ends early: {}", table, trouble));
}

std::optional<Interval> NsysReader::times(std::string_view table, const SqliteRow& row) {
  const std::optional<int64_t> start = row.integer(0), end = row.integer(1);
  const auto is_time = [](const std::optional<int64_t>& time) {
    return time && *time >= -kMaxTime && *time <= kMaxTime;
  };
  // CUPTI writes 0 and 0 where it could not tell.
  if (is_time(start) && is_time(end) && (*start != 0 || *end != 0)) return Interval{*start, *end};
  builder_.warn(fmt::format("{}: rows without a start and an end that could be times", table));
  return std::nullopt;
}

// Of a number in StringIds, or what is written in its place. Valid while the row is.
std::string_view NsysReader::text_of(const SqliteRow& row, int column) const {
  if (row.is_text(column)) return row.text(column);
  const std::optional<int64_t> id = row.integer(column);
  const auto found = id ? texts_.find(*id) : texts_.end();
  return found == texts_.end() ? std::string_view() : std::string_view(found->second);
}

NsysReader::Labels NsysReader::labels(std::string_view table) {
  static constexpr std::string_view kColumns[] = {"id", "name", "label"};
  Labels found;
  each(table, kColumns, [&](const SqliteRow& row) {
    if (const auto id = row.integer(0))
      found[*id] = in_lower_case(std::string(row.text(1)) + " " + std::string(row.text(2)));
  });
  return found;
}

void NsysReader::read_texts() {
  static constexpr std::string_view kColumns[] = {"id", "value"};
  each("StringIds", kColumns, [&](const SqliteRow& row) {
    if (const auto id = row.integer(0)) texts_.emplace(*id, row.text(1));
  });
}

void NsysReader::read_session() {
  static constexpr std::string_view kColumns[] = {"utcEpochNs"};
  each("TARGET_INFO_SESSION_START_TIME", kColumns, [&](const SqliteRow& row) {
    const int64_t start = row.integer(0).value_or(0);
    if (start > 0 && trace_.base_ns == 0) trace_.base_ns = start;
  });
}

void NsysReader::read_devices() {
  static constexpr std::string_view kGpu[] = {
      "id", "name", "smCount", "computeMajor", "computeMinor", "totalMemory"};
  std::map<int64_t, Device> devices;
  each("TARGET_INFO_GPU", kGpu, [&](const SqliteRow& row) {
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
  for (auto& [id, device] : devices) trace_.devices.push_back(std::move(device));
  // A process counts only the devices that it may see.
  static constexpr std::string_view kOrdinal[] = {"pid", "cudaId", "gpuId"};
  each("TARGET_INFO_CUDA_DEVICE", kOrdinal, [&](const SqliteRow& row) {
    const auto process = row.integer(0), ordinal = row.integer(1), gpu = row.integer(2);
    if (process && ordinal && gpu) gpu_of_[{*process, *ordinal}] = *gpu;
  });
}

void NsysReader::read_diagnostics() {
  static constexpr std::string_view kColumns[] = {"severity", "text"};
  constexpr int64_t kInfo = 1;  // 2: a warning, 3: an error
  const Labels severities = labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL");
  each("DIAGNOSTIC_EVENT", kColumns, [&](const SqliteRow& row) {
    const int64_t severity = row.integer(0).value_or(kInfo);
    const auto label = severities.find(severity);
    const bool is_info = label == severities.end()
                             ? severity <= kInfo
                             : label->second.find("info") != std::string::npos;
    const std::string_view text = row.text(1);
    if (is_info || text.empty()) return;
    builder_.warn(fmt::format("nsys: {}", text.substr(0, kMaxWarningText)));
    if (tells_of_loss(text)) trace_.dropped += count_in(text);
  });
}

void NsysReader::read_ranks() {
  static constexpr std::string_view kColumns[] = {"rank"};
  constexpr int64_t kMost = 1 << 24;
  std::set<int64_t> ranks;
  each("MPI_RANKS", kColumns, [&](const SqliteRow& row) {
    const auto rank = row.integer(0);
    if (rank && *rank >= 0 && *rank < kMost) ranks.insert(*rank);
  });
  if (ranks.size() == 1) trace_.rank = static_cast<int32_t>(*ranks.begin());
}

// Every process counts its calls from 1.
void NsysReader::separate_processes() {
  std::map<int64_t, int64_t> processes;
  for (size_t row = 0; row < trace_.size(); ++row)
    if (trace_.correlation[row] >= 0) processes.emplace(trace_.lane_of(row).process, 0);
  if (processes.size() < 2) return;
  int64_t next = 0;
  for (auto& [process, number] : processes) number = next++;
  for (size_t row = 0; row < trace_.size(); ++row) {
    if (trace_.correlation[row] < 0) continue;
    const int64_t offset = processes[trace_.lane_of(row).process] << 32;
    trace_.correlation[row] += offset;
    if (trace_.kind[row] != EventKind::kSynchronization) continue;
    Sync& sync = trace_.syncs[trace_.detail[row]];
    if (sync.waits_on_correlation >= 0) sync.waits_on_correlation += offset;
  }
}

// nsys does not say whether a copy was asynchronous; the call that asked for it has it in its name.
void NsysReader::find_blocking_transfers() {
  std::unordered_set<int64_t> blocking;
  for (size_t row = 0; row < trace_.size(); ++row) {
    if (trace_.kind[row] != EventKind::kRuntime || trace_.correlation[row] < 0) continue;
    const std::string_view name = trace_.name_text(row);
    const bool is_transfer = name.starts_with("cudaMem") || name.starts_with("cuMem");
    if (is_transfer && name.find("Async") == std::string_view::npos)
      blocking.insert(trace_.correlation[row]);
  }
  for (size_t row = 0; row < trace_.size(); ++row)
    if (trace_.kind[row] == EventKind::kCopy || trace_.kind[row] == EventKind::kSet)
      if (blocking.contains(trace_.correlation[row]))
        trace_.transfers[trace_.detail[row]].is_async = false;
}

Trace read_nsys(const std::string& path) {
  Trace trace;
  trace.recorder = "nsys";
  trace.source = path;
  SqliteFile file(path);
  NsysReader(file, trace).read();
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
