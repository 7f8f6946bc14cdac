// What devices did: kernels, whole graphs, copies, sets, and who waits for whom.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "ridge/doctor/read/nsys_reader.h"

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

MemoryKind memory_kind(std::optional<int64_t> number,
                       const std::map<int64_t, std::string>& labels) {
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
                                   const std::map<int64_t, std::string>& labels) {
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

Sync::What what_of(std::optional<int64_t> number, const std::map<int64_t, std::string>& labels) {
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

}  // namespace

int64_t NsysReader::process_of(std::optional<int64_t> global) const {
  return global ? process_in(*global) : only_process_.value_or(0);
}

std::optional<uint32_t> NsysReader::device_lane(std::string_view table, const SqliteRow& row) {
  Lane lane;
  lane.process = process_of(row.integer(4));
  int64_t device = row.is_null(2) ? 0 : row.integer(2).value_or(-1);
  const auto gpu = gpu_of_.find({lane.process, device});
  if (gpu != gpu_of_.end()) device = gpu->second;
  if (device < 0 || device >= kMaxDevices) {
    builder_.warn(fmt::format("{}: rows with a device that cannot be", table));
    return std::nullopt;
  }
  lane.device = static_cast<int32_t>(device);
  const int64_t stream = row.integer(3).value_or(kNoStream);
  lane.thread = stream == kNoStream ? -1 : stream;
  return builder_.lane(lane);
}

std::optional<size_t> NsysReader::add_device_row(std::string_view table,
                                                 const SqliteRow& row,
                                                 EventKind kind,
                                                 uint32_t name) {
  const auto at = times(table, row);
  if (!at) return std::nullopt;
  const auto lane = device_lane(table, row);
  if (!lane) return std::nullopt;
  const size_t added = builder_.add(kind, name, *lane, at->begin, at->end - at->begin);
  builder_.set_correlation(added, correlation_of(row.integer(5)));
  return added;
}

void NsysReader::read_kernels() {
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
  each(kTable, kColumns, [&](const SqliteRow& row) {
    std::string_view name;
    for (int column = kOwn; column < kOwn + 3 && name.empty(); ++column)
      name = text_of(row, column);
    const auto added = add_device_row(kTable, row, EventKind::kKernel, builder_.text(name));
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
void NsysReader::read_graphs() {
  static constexpr std::string_view kColumns[] = {RIDGE_DEVICE_COLUMNS, "graphId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
  each(kTable, kColumns, [&](const SqliteRow& row) {
    const int64_t graph = std::max<int64_t>(0, row.integer(kOwn).value_or(0));
    const uint32_t name = builder_.text(fmt::format("CUDA graph {}", graph));
    const auto added = add_device_row(kTable, row, EventKind::kKernel, name);
    if (!added) return;
    builder_.set(*added, Launch{.graph = graph});
    builder_.warn(
        "graphs were recorded whole, without their kernels: record with "
        "--cuda-graph-trace=node");
  });
}

void NsysReader::read_copies() {
  static constexpr std::string_view kColumns[] = {
      RIDGE_DEVICE_COLUMNS, "bytes", "copyKind", "srcKind", "dstKind"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_MEMCPY";
  const Labels directions = labels("ENUM_CUDA_MEMCPY_OPER");
  const Labels kinds = labels("ENUM_CUDA_MEM_KIND");
  each(kTable, kColumns, [&](const SqliteRow& row) {
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
    const auto added = add_device_row(kTable, row, EventKind::kCopy, builder_.text(name));
    if (added) builder_.set(*added, transfer);
  });
}

void NsysReader::read_sets() {
  static constexpr std::string_view kColumns[] = {RIDGE_DEVICE_COLUMNS, "bytes", "memKind"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_MEMSET";
  const Labels kinds = labels("ENUM_CUDA_MEM_KIND");
  each(kTable, kColumns, [&](const SqliteRow& row) {
    const MemoryKind kind = memory_kind(row.integer(kOwn + 1), kinds);
    const uint32_t name = builder_.text(fmt::format("Memset ({})", text_of_kind(kind)));
    const auto added = add_device_row(kTable, row, EventKind::kSet, name);
    if (added) builder_.set(*added, Transfer{.bytes = bytes_of(row.integer(kOwn)), .to = kind});
  });
}

void NsysReader::read_event_records() {
  static constexpr std::string_view kColumns[] = {
      "globalPid", "eventSyncId", "eventId", "correlationId", "streamId"};
  each("CUPTI_ACTIVITY_KIND_CUDA_EVENT", kColumns, [&](const SqliteRow& row) {
    EventRecord record{.process = process_of(row.integer(0)),
                       .key = row.integer(1).value_or(0),
                       .correlation = correlation_of(row.integer(3)),
                       .stream = row.integer(4).value_or(-1)};
    if (record.key > 0) by_sync_.push_back(record);
    record.key = row.integer(2).value_or(-1);
    if (record.key >= 0) by_event_.push_back(record);
  });
  const auto earlier = [](const EventRecord& a, const EventRecord& b) {
    return a.order() < b.order();
  };
  std::stable_sort(by_sync_.begin(), by_sync_.end(), earlier);
  std::stable_sort(by_event_.begin(), by_event_.end(), earlier);
}

// The last record before the wait; calls are numbered in their order.
const NsysReader::EventRecord* NsysReader::find_record(const std::vector<EventRecord>& records,
                                                       const EventRecord& wait) const {
  const auto after =
      std::upper_bound(records.begin(), records.end(), wait, [](const auto& a, const auto& b) {
        return a.order() < b.order();
      });
  if (after == records.begin()) return nullptr;
  const EventRecord& last = *std::prev(after);
  return last.process == wait.process && last.key == wait.key ? &last : nullptr;
}

Sync NsysReader::sync_of(const SqliteRow& row, const Labels& kinds) const {
  Sync sync{.what = what_of(row.integer(kOwn), kinds)};
  const bool is_of_event =
      sync.what == Sync::What::kStreamWaitsEvent || sync.what == Sync::What::kEvent;
  if (!is_of_event) return sync;
  sync.event = row.integer(kOwn + 1).value_or(-1);
  const int64_t correlation = correlation_of(row.integer(5));
  EventRecord wait{
      .process = process_of(row.integer(4)),
      .key = row.integer(kOwn + 2).value_or(0),
      .correlation = correlation < 0 ? std::numeric_limits<int64_t>::max() : correlation,
      .stream = -1};
  const EventRecord* record = wait.key > 0 ? find_record(by_sync_, wait) : nullptr;
  if (record == nullptr) {
    // eventId alone: an event may be recorded again and again.
    wait.key = sync.event;
    record = find_record(by_event_, wait);
  }
  if (record == nullptr) return sync;
  sync.waits_on_stream = record->stream;
  sync.waits_on_correlation = record->correlation;
  return sync;
}

void NsysReader::read_synchronizations() {
  static constexpr std::string_view kColumns[] = {
      RIDGE_DEVICE_COLUMNS, "syncType", "eventId", "eventSyncId"};
  constexpr std::string_view kTable = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
  const Labels kinds = labels("ENUM_CUPTI_SYNC_TYPE");
  each(kTable, kColumns, [&](const SqliteRow& row) {
    const Sync sync = sync_of(row, kinds);
    const uint32_t name = builder_.text(name_of(sync.what));
    const auto added = add_device_row(kTable, row, EventKind::kSynchronization, name);
    if (added) builder_.set(*added, sync);
  });
}

}  // namespace ridge::doctor
