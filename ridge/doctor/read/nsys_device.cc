#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <vector>

#include "ridge/doctor/read/nsys_tables.h"

namespace ridge::doctor {
namespace {

// Every table of a device begins with these.
#define RIDGE_DEVICE_COLUMNS "start", "end", "deviceId", "streamId", "globalPid", "correlationId"
constexpr int kOwn = 6;  // the first column after them

constexpr int64_t kNoStream = 0xffffffff;  // as CUPTI says it

int64_t bytes_of(std::optional<int64_t> number) { return number && *number >= 0 ? *number : -1; }

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

MemoryKind memory_kind(std::optional<int64_t> number, const NsysTables::Labels& labels) {
  if (!number) return MemoryKind::kUnknown;
  const auto label = labels.find(*number);
  if (label != labels.end()) {
    const std::string& text = label->second;
    if (has(text, "pageable")) return MemoryKind::kPageable;
    if (has(text, "pinned")) return MemoryKind::kPinned;
    if (has(text, "managed")) return MemoryKind::kManaged;
    if (has(text, "array")) return MemoryKind::kArray;
    if (has(text, "device")) return MemoryKind::kDevice;
    return MemoryKind::kUnknown;
  }
  constexpr MemoryKind kByNumber[] = {MemoryKind::kPageable,
                                      MemoryKind::kPinned,
                                      MemoryKind::kDevice,
                                      MemoryKind::kArray,
                                      MemoryKind::kManaged,
                                      MemoryKind::kDevice,
                                      MemoryKind::kManaged};
  const bool is_known = *number >= 0 && *number < std::ssize(kByNumber);
  return is_known ? kByNumber[*number] : MemoryKind::kUnknown;
}

std::string_view text_of_kind(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kUnknown:
      return "Unknown";
    case MemoryKind::kPageable:
      return "Pageable";
    case MemoryKind::kPinned:
      return "Pinned";
    case MemoryKind::kDevice:
      return "Device";
    case MemoryKind::kManaged:
      return "Managed";
    case MemoryKind::kArray:
      return "Array";
  }
  return "Unknown";
}

// From and to: 'H'ost, 'D'evice, 'P'eer; '?' where the kind of a copy does not say.
std::pair<char, char> direction_of(std::optional<int64_t> number,
                                   const NsysTables::Labels& labels) {
  const auto label = number ? labels.find(*number) : labels.end();
  if (label != labels.end()) {
    const std::string& text = label->second;
    if (has(text, "htod") || has(text, "host-to-device")) return {'H', 'D'};
    if (has(text, "dtoh") || has(text, "device-to-host")) return {'D', 'H'};
    if (has(text, "dtod") || has(text, "device-to-device")) return {'D', 'D'};
    if (has(text, "htoh") || has(text, "host-to-host")) return {'H', 'H'};
    if (has(text, "ptop") || has(text, "peer-to-peer")) return {'P', 'P'};
    return {'?', '?'};
  }
  switch (number.value_or(0)) {
    case 1:
    case 11:
      return {'H', 'D'};
    case 2:
    case 12:
      return {'D', 'H'};
    case 8:
    case 13:
      return {'D', 'D'};
    case 9:
      return {'H', 'H'};
    case 10:
      return {'P', 'P'};
    default:
      return {'?', '?'};
  }
}

Sync::What what_of(std::optional<int64_t> number, const NsysTables::Labels& labels) {
  if (!number) return Sync::What::kUnknown;
  const auto label = labels.find(*number);
  if (label != labels.end()) {
    const std::string& text = label->second;
    if (has(text, "stream_wait") || has(text, "stream wait")) return Sync::What::kStreamWaitsEvent;
    if (has(text, "event")) return Sync::What::kEvent;
    if (has(text, "stream")) return Sync::What::kStream;
    if (has(text, "context")) return Sync::What::kContext;
    return Sync::What::kUnknown;
  }
  switch (*number) {  // as CUPTI counts them
    case 1:
      return Sync::What::kEvent;
    case 2:
      return Sync::What::kStreamWaitsEvent;
    case 3:
      return Sync::What::kStream;
    case 4:
      return Sync::What::kContext;
    default:
      return Sync::What::kUnknown;
  }
}

std::string_view name_of(Sync::What what) {
  switch (what) {
    case Sync::What::kUnknown:
      return "Sync";
    case Sync::What::kStreamWaitsEvent:
      return "Stream Wait Event";
    case Sync::What::kEvent:
      return "Event Sync";
    case Sync::What::kStream:
      return "Stream Sync";
    case Sync::What::kContext:
      return "Context Sync";
  }
  return "Sync";
}

// The process of a row, or the one that rows which name none are taken to be of.
int64_t process_of(std::optional<int64_t> global, std::optional<int64_t> otherwise) {
  return global ? process_in(*global) : otherwise.value_or(0);
}

// The calls that recorded events, found again by what a wait knows of them.
class EventRecords {
 public:
  struct Record {
    int64_t process, key, correlation, stream;
    auto order() const { return std::tie(process, key, correlation); }
  };

  explicit EventRecords(std::optional<int64_t> process) : process_(process) {}
  void read(NsysTables& tables);
  /// Completes what a row says of a synchronization with the record that it waits for.
  void complete(Sync& sync, const SqliteRow& row) const;

 private:
  static const Record* find(const std::vector<Record>& records, const Record& wait);

  std::optional<int64_t> process_;          // of rows that name none
  std::vector<Record> by_sync_, by_event_;  // sorted
};

void EventRecords::read(NsysTables& tables) {
  static constexpr std::string_view kColumns[] = {
      "globalPid", "eventSyncId", "eventId", "correlationId", "streamId"};
  tables.each("CUPTI_ACTIVITY_KIND_CUDA_EVENT", kColumns, [&](const SqliteRow& row) {
    Record record{.process = process_of(row.integer(0), process_),
                  .key = row.integer(1).value_or(0),
                  .correlation = correlation_of(row.integer(3)),
                  .stream = row.integer(4).value_or(-1)};
    if (record.key > 0) by_sync_.push_back(record);
    record.key = row.integer(2).value_or(-1);
    if (record.key >= 0) by_event_.push_back(record);
  });
  const auto earlier = [](const Record& a, const Record& b) { return a.order() < b.order(); };
  std::stable_sort(by_sync_.begin(), by_sync_.end(), earlier);
  std::stable_sort(by_event_.begin(), by_event_.end(), earlier);
}

// The last record before the wait is the one: calls are numbered in their order.
const EventRecords::Record* EventRecords::find(const std::vector<Record>& records,
                                               const Record& wait) {
  const auto after =
      std::upper_bound(records.begin(), records.end(), wait, [](const auto& a, const auto& b) {
        return a.order() < b.order();
      });
  if (after == records.begin()) return nullptr;
  const Record& last = *std::prev(after);
  return last.process == wait.process && last.key == wait.key ? &last : nullptr;
}

void EventRecords::complete(Sync& sync, const SqliteRow& row) const {
  if (sync.what != Sync::What::kStreamWaitsEvent && sync.what != Sync::What::kEvent) return;
  sync.event = row.integer(kOwn + 1).value_or(-1);
  const int64_t correlation = correlation_of(row.integer(5));
  Record wait{.process = process_of(row.integer(4), process_),
              .key = row.integer(kOwn + 2).value_or(0),
              .correlation = correlation < 0 ? std::numeric_limits<int64_t>::max() : correlation,
              .stream = -1};
  const Record* record = wait.key > 0 ? find(by_sync_, wait) : nullptr;
  if (record == nullptr) {
    // The eventId alone does not tell which record: an event may be recorded again and again.
    wait.key = sync.event;
    record = find(by_event_, wait);
  }
  if (record == nullptr) return;
  sync.waits_on_stream = record->stream;
  sync.waits_on_correlation = record->correlation;
}

class DeviceReader {
 public:
  DeviceReader(NsysTables& tables,
               TraceBuilder& builder,
               const GpuNumbers& gpu_of,
               std::optional<int64_t> process)
      : tables_(tables), builder_(builder), gpu_of_(gpu_of), process_(process) {}

  void read_kernels();
  void read_graphs();
  void read_copies();
  void read_sets();
  void read_synchronizations(const EventRecords& records);

 private:
  std::optional<uint32_t> lane(std::string_view table, const SqliteRow& row);
  std::optional<size_t> add(std::string_view table,
                            const SqliteRow& row,
                            EventKind kind,
                            uint32_t name);

  NsysTables& tables_;
  TraceBuilder& builder_;
  const GpuNumbers& gpu_of_;
  std::optional<int64_t> process_;  // of rows that name none
};

std::optional<uint32_t> DeviceReader::lane(std::string_view table, const SqliteRow& row) {
  Lane stream;
  stream.process = process_of(row.integer(4), process_);
  int64_t device = row.is_null(2) ? 0 : row.integer(2).value_or(-1);
  const auto gpu = gpu_of_.find({stream.process, device});
  if (gpu != gpu_of_.end()) device = gpu->second;
  if (device < 0 || device >= kMaxDevices) {
    builder_.warn(fmt::format("{}: rows with a device that cannot be", table));
    return std::nullopt;
  }
  stream.device = static_cast<int32_t>(device);
  const int64_t number = row.integer(3).value_or(kNoStream);
  stream.thread = number == kNoStream ? -1 : number;
  return builder_.lane(stream);
}

std::optional<size_t> DeviceReader::add(std::string_view table,
                                        const SqliteRow& row,
                                        EventKind kind,
                                        uint32_t name) {
  const auto at = tables_.times(table, row);
  if (!at) return std::nullopt;
  const auto stream = lane(table, row);
  if (!stream) return std::nullopt;
  const size_t added = builder_.add(kind, name, *stream, at->begin, at->end - at->begin);
  builder_.set_correlation(added, correlation_of(row.integer(5)));
  return added;
}

void DeviceReader::read_kernels() {
  static constexpr std::string_view kColumns[] = {RIDGE_DEVICE_COLUMNS,
                                                  "demangledName",
                                                  "shortName",
                                                  "mangledName",
                                                  "gridX",
                                                  "gridY",
                                                  "gridZ",
                                                  "blockX",
                                                  "blockY",
                                                  "blockZ",
                                                  "registersPerThread",
                                                  "staticSharedMemory",
                                                  "dynamicSharedMemory",
                                                  "graphId",
                                                  "graphNodeId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_KERNEL";
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    std::string_view name;
    for (int column = kOwn; column < kOwn + 3 && name.empty(); ++column)
      name = tables_.text_of(row, column);
    const auto added = add(kTable, row, EventKind::kKernel, builder_.text(name));
    if (!added) return;
    Launch launch;
    for (int axis = 0; axis < 3; ++axis) {
      launch.grid[axis] = positive_int32(row.integer(kOwn + 3 + axis));
      launch.block[axis] = positive_int32(row.integer(kOwn + 6 + axis));
    }
    launch.registers = positive_int32(row.integer(kOwn + 9));
    launch.shared_bytes =
        int64_t{positive_int32(row.integer(kOwn + 10))} + positive_int32(row.integer(kOwn + 11));
    // Older exports have the node alone, whose upper half is the graph's number.
    const int64_t node = std::max<int64_t>(0, row.integer(kOwn + 13).value_or(0));
    launch.graph = std::max<int64_t>(0, row.integer(kOwn + 12).value_or(node >> 32));
    builder_.set(*added, launch);
  });
}

// Without --cuda-graph-trace=node a graph is one row, and its kernels are not in the file.
void DeviceReader::read_graphs() {
  static constexpr std::string_view kColumns[] = {RIDGE_DEVICE_COLUMNS, "graphId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    const int64_t graph = std::max<int64_t>(0, row.integer(kOwn).value_or(0));
    const uint32_t name = builder_.text(fmt::format("CUDA graph {}", graph));
    const auto added = add(kTable, row, EventKind::kKernel, name);
    if (!added) return;
    builder_.set(*added, Launch{.graph = graph});
    builder_.warn(
        "graphs were recorded whole, without their kernels: record with "
        "--cuda-graph-trace=node");
  });
}

void DeviceReader::read_copies() {
  static constexpr std::string_view kColumns[] = {
      RIDGE_DEVICE_COLUMNS, "bytes", "copyKind", "srcKind", "dstKind"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_MEMCPY";
  const NsysTables::Labels directions = tables_.labels("ENUM_CUDA_MEMCPY_OPER");
  const NsysTables::Labels kinds = tables_.labels("ENUM_CUDA_MEM_KIND");
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    const auto [from, to] = direction_of(row.integer(kOwn + 1), directions);
    Transfer transfer{.bytes = bytes_of(row.integer(kOwn)),
                      .from = memory_kind(row.integer(kOwn + 2), kinds),
                      .to = memory_kind(row.integer(kOwn + 3), kinds)};
    if (from == 'D' && transfer.from == MemoryKind::kUnknown) transfer.from = MemoryKind::kDevice;
    if (to == 'D' && transfer.to == MemoryKind::kUnknown) transfer.to = MemoryKind::kDevice;
    const std::string name = fmt::format("Memcpy {}to{} ({} -> {})",
                                         from,
                                         to,
                                         text_of_kind(transfer.from),
                                         text_of_kind(transfer.to));
    const auto added = add(kTable, row, EventKind::kCopy, builder_.text(name));
    if (added) builder_.set(*added, transfer);
  });
}

void DeviceReader::read_sets() {
  static constexpr std::string_view kColumns[] = {RIDGE_DEVICE_COLUMNS, "bytes", "memKind"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_MEMSET";
  const NsysTables::Labels kinds = tables_.labels("ENUM_CUDA_MEM_KIND");
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    const MemoryKind kind = memory_kind(row.integer(kOwn + 1), kinds);
    const uint32_t name = builder_.text(fmt::format("Memset ({})", text_of_kind(kind)));
    const auto added = add(kTable, row, EventKind::kSet, name);
    if (added) builder_.set(*added, Transfer{.bytes = bytes_of(row.integer(kOwn)), .to = kind});
  });
}

void DeviceReader::read_synchronizations(const EventRecords& records) {
  static constexpr std::string_view kColumns[] = {
      RIDGE_DEVICE_COLUMNS, "syncType", "eventId", "eventSyncId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
  const NsysTables::Labels kinds = tables_.labels("ENUM_CUPTI_SYNC_TYPE");
  tables_.each(kTable, kColumns, [&](const SqliteRow& row) {
    Sync sync{.what = what_of(row.integer(kOwn), kinds)};
    records.complete(sync, row);
    const uint32_t name = builder_.text(name_of(sync.what));
    const auto added = add(kTable, row, EventKind::kSynchronization, name);
    if (added) builder_.set(*added, sync);
  });
}

}  // namespace

void read_device_events(NsysTables& tables,
                        TraceBuilder& builder,
                        const GpuNumbers& gpu_of,
                        std::optional<int64_t> process) {
  DeviceReader reader(tables, builder, gpu_of, process);
  reader.read_kernels();
  reader.read_graphs();
  reader.read_copies();
  reader.read_sets();
  EventRecords records(process);
  records.read(tables);
  reader.read_synchronizations(records);
}

}  // namespace ridge::doctor
