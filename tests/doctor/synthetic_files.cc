// Synthetic traces as files of Kineto and of nsys.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "ridge/base/json_writer.h"
#include "tests/doctor/nsys_tables.h"
#include "tests/doctor/sqlite_database.h"
#include "tests/doctor/synthetic_trace.h"

namespace ridge::doctor::synthetic {
namespace {

using test::SqliteDatabase;
using test::SqlValue;

std::vector<size_t> shuffled_rows(const Trace& trace, uint64_t seed) {
  std::vector<size_t> rows(trace.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::mt19937_64 random(seed);
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
  return rows;
}

// ---- Kineto ----

const char* category_of(EventKind kind) {
  switch (kind) {
    case EventKind::kOperator:
      return "cpu_op";
    case EventKind::kPython:
      return "python_function";
    case EventKind::kRange:
      return "user_annotation";
    case EventKind::kRuntime:
      return "cuda_runtime";
    case EventKind::kKernel:
      return "kernel";
    case EventKind::kCopy:
      return "gpu_memcpy";
    case EventKind::kSet:
      return "gpu_memset";
    case EventKind::kSynchronization:
      return "cuda_sync";
    case EventKind::kDeviceRange:
      return "gpu_user_annotation";
    case EventKind::kOverhead:
      return "overhead";
    case EventKind::kHostWait:
    case EventKind::kOther:
      break;
  }
  return nullptr;  // Kineto has nothing of the kind
}

void write_three(JsonWriter& json, const char* key, const int32_t (&sizes)[3]) {
  json.key(key).begin_array();
  for (const int32_t size : sizes) json.value(size);
  json.end_array();
}

// "[[64, 3], [3]]" and "[\"float\"]" are JSON of numbers and texts: written as they are read.
void write_list(JsonWriter& json, const char* key, const std::string& list) {
  json.key(key);
  std::string token;
  const auto finish = [&] {
    if (!token.empty()) json.value(std::stoll(token));
    token.clear();
  };
  bool is_inside = false;
  for (const char c : list) {
    if (c == '"') {
      if (is_inside) json.value(token);
      if (is_inside) token.clear();
      is_inside = !is_inside;
    } else if (is_inside || (c >= '0' && c <= '9')) {
      token += c;
    } else {
      finish();
      if (c == '[') json.begin_array();
      if (c == ']') json.end_array();
    }
  }
}

void write_details(const Trace& trace, size_t row, JsonWriter& json) {
  const uint32_t at = trace.detail[row];
  if (at == Trace::kNone) return;
  switch (trace.kind[row]) {
    case EventKind::kKernel: {
      const Launch& launch = trace.launches[at];
      write_three(json, "grid", launch.grid);
      write_three(json, "block", launch.block);
      json.field("registers per thread", launch.registers);
      json.field("shared memory", launch.shared_bytes);
      if (launch.graph != 0) json.field("graph id", launch.graph);
      return;
    }
    case EventKind::kCopy:
    case EventKind::kSet:
      json.field("bytes", trace.transfers[at].bytes);
      return;
    case EventKind::kSynchronization: {
      const Sync& sync = trace.syncs[at];
      json.field("cuda_sync_kind", trace.name_text(row));
      if (sync.event < 0) return;
      json.field("wait_on_stream", sync.waits_on_stream);
      json.field("wait_on_cuda_event_record_corr_id", sync.waits_on_correlation);
      json.field("wait_on_cuda_event_id", sync.event);
      return;
    }
    case EventKind::kOperator: {
      const Details& details = trace.details[at];
      if (details.shapes != 0) write_list(json, "Input Dims", trace.names[details.shapes]);
      if (details.types != 0) write_list(json, "Input type", trace.names[details.types]);
      if (details.collective == 0) return;
      json.field("In msg nelems", details.collective / 2).field("dtype", "BFloat16");
      return;
    }
    default:
      return;
  }
}

void write_row(const Trace& trace, size_t row, JsonWriter& json) {
  const char* category = category_of(trace.kind[row]);
  if (category == nullptr) return;
  const Lane& lane = trace.lane_of(row);
  json.begin_object().field("ph", "X").field("cat", category).field("name", trace.name_text(row));
  json.field("pid", lane.is_device() ? int64_t{lane.device} : lane.process);
  json.field("tid", lane.thread);
  json.key("ts").decimal(trace.start_ns[row], 3).key("dur").decimal(trace.duration_ns[row], 3);
  json.key("args").begin_object();
  if (lane.is_device()) json.field("device", lane.device).field("stream", lane.thread);
  if (trace.correlation[row] >= 0) json.field("correlation", trace.correlation[row]);
  write_details(trace, row, json);
  json.end_object().end_object();
}

// ---- nsys ----

int64_t copy_kind(const Transfer& transfer) {
  const bool from_device = transfer.from == MemoryKind::kDevice;
  if (transfer.to != MemoryKind::kDevice) return from_device ? 2 : 9;
  return from_device ? 8 : 1;
}

SqlValue memory_kind(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPageable:
      return int64_t{0};
    case MemoryKind::kPinned:
      return int64_t{1};
    case MemoryKind::kDevice:
      return int64_t{2};
    case MemoryKind::kArray:
      return int64_t{3};
    case MemoryKind::kManaged:
      return int64_t{4};
    case MemoryKind::kUnknown:
      break;
  }
  return {};
}

int64_t sync_type(Sync::What what) {
  switch (what) {
    case Sync::What::kEvent:
      return 1;
    case Sync::What::kStreamWaitsEvent:
      return 2;
    case Sync::What::kStream:
      return 3;
    case Sync::What::kContext:
      return 4;
    case Sync::What::kUnknown:
      break;
  }
  return 0;
}

class NsysWriter {
 public:
  NsysWriter(const Trace& trace, const std::filesystem::path& path)
      : trace_(trace), database_(path) {
    database_.run(test::kNsysTables);
    database_.run("BEGIN");
  }
  void write(const std::vector<size_t>& rows);

 private:
  void write_head();
  void write_row(size_t row);
  void write_kernel(size_t row);
  void write_copy(size_t row);
  void write_sync(size_t row);
  std::vector<SqlValue> device_values(size_t row) const;
  int64_t text(std::string_view text);

  const Trace& trace_;
  SqliteDatabase database_;
  std::map<std::string, int64_t, std::less<>> texts_;
  std::set<int64_t> records_;
};

int64_t NsysWriter::text(std::string_view text) {
  const auto [entry, is_new] =
      texts_.emplace(std::string(text), static_cast<int64_t>(texts_.size()) + 1);
  if (is_new) database_.insert("StringIds", {entry->second, entry->first});
  return entry->second;
}

void NsysWriter::write_head() {
  database_.insert("TARGET_INFO_SESSION_START_TIME", {trace_.base_ns, {}, {}});
  for (const Device& each : trace_.devices)
    database_.insert("TARGET_INFO_GPU",
                     {int64_t{0},
                      int64_t{each.number},
                      each.name,
                      each.memory_bytes,
                      int64_t{each.major},
                      int64_t{each.minor},
                      int64_t{each.multiprocessors}});
  if (trace_.rank >= 0) database_.insert("MPI_RANKS", {int64_t{1}, int64_t{trace_.rank}});
  for (const Lane& lane : trace_.lanes)
    if (!lane.is_device() && !lane.name.empty())
      database_.insert("ThreadNames",
                       {text(lane.name), int64_t{20}, lane.process << 24 | lane.thread});
}

std::vector<SqlValue> NsysWriter::device_values(size_t row) const {
  const Lane& lane = trace_.lane_of(row);
  return {trace_.start_ns[row],
          trace_.end_ns(row),
          int64_t{lane.device},
          int64_t{1},
          lane.thread < 0 ? int64_t{0xffffffff} : lane.thread,
          trace_.correlation[row],
          lane.process << 24};
}

void NsysWriter::write_kernel(size_t row) {
  const Launch& launch = trace_.launches[trace_.detail[row]];
  const int64_t name = text(trace_.name_text(row));
  std::vector<SqlValue> values = device_values(row);
  values.insert(values.begin() + 4, SqlValue());  // no green context
  for (const SqlValue& each : {SqlValue(name), SqlValue(name), SqlValue()}) values.push_back(each);
  values.emplace_back(int64_t{launch.registers});
  for (const int32_t each : launch.grid) values.emplace_back(int64_t{each});
  for (const int32_t each : launch.block) values.emplace_back(int64_t{each});
  values.emplace_back(launch.shared_bytes);
  values.emplace_back(int64_t{0});
  values.emplace_back();
  values.push_back(launch.graph == 0 ? SqlValue() : SqlValue(launch.graph));
  database_.insert("CUPTI_ACTIVITY_KIND_KERNEL", values);
}

void NsysWriter::write_copy(size_t row) {
  const Transfer& transfer = trace_.transfers[trace_.detail[row]];
  std::vector<SqlValue> values = device_values(row);
  values.emplace_back(transfer.bytes);
  values.emplace_back(copy_kind(transfer));
  values.push_back(memory_kind(transfer.from));
  values.push_back(memory_kind(transfer.to));
  database_.insert("CUPTI_ACTIVITY_KIND_MEMCPY", values);
}

void NsysWriter::write_sync(size_t row) {
  const Sync& sync = trace_.syncs[trace_.detail[row]];
  std::vector<SqlValue> values = device_values(row);
  const bool is_known = sync.waits_on_correlation >= 0;
  values.emplace_back(sync_type(sync.what));
  values.emplace_back(std::max<int64_t>(0, sync.event));
  values.emplace_back(is_known ? sync.waits_on_correlation + 1000 : int64_t{0});
  database_.insert("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", values);
  if (!is_known || !records_.insert(sync.waits_on_correlation).second) return;
  const Lane& lane = trace_.lane_of(row);
  database_.insert("CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                   {int64_t{0},
                    int64_t{lane.device},
                    int64_t{1},
                    sync.waits_on_stream,
                    sync.waits_on_correlation,
                    lane.process << 24,
                    sync.event,
                    sync.waits_on_correlation + 1000});
}

void NsysWriter::write_row(size_t row) {
  const Lane& lane = trace_.lane_of(row);
  const int64_t thread = lane.process << 24 | lane.thread;
  const int64_t start = trace_.start_ns[row], end = trace_.end_ns(row);
  switch (trace_.kind[row]) {
    case EventKind::kKernel:
      return write_kernel(row);
    case EventKind::kCopy:
      return write_copy(row);
    case EventKind::kSynchronization:
      return write_sync(row);
    case EventKind::kRuntime:
      return database_.insert("CUPTI_ACTIVITY_KIND_RUNTIME",
                              {start,
                               end,
                               int64_t{0},
                               thread,
                               trace_.correlation[row],
                               text(std::string(trace_.name_text(row)) + "_v3020"),
                               int64_t{0},
                               {}});
    case EventKind::kHostWait:
      return database_.insert("OSRT_API",
                              {start, end, int64_t{27}, thread, text(trace_.name_text(row))});
    case EventKind::kOperator:
    case EventKind::kRange:
      return database_.insert(
          "NVTX_EVENTS",
          {start, end, int64_t{59}, {}, std::string(trace_.name_text(row)), thread, {}});
    default:
      return;  // nsys has nothing of the kind
  }
}

void NsysWriter::write(const std::vector<size_t>& rows) {
  write_head();
  for (const size_t row : rows) write_row(row);
  database_.run("COMMIT");
}

}  // namespace

void write_kineto(const Trace& trace, uint64_t seed, const std::filesystem::path& path) {
  std::ofstream file(path, std::ios::binary);
  JsonWriter json(file);
  json.begin_object().field("schemaVersion", 1).field("baseTimeNanoseconds", trace.base_ns);
  json.key("deviceProperties").begin_array();
  for (const Device& each : trace.devices)
    json.begin_object()
        .field("id", each.number)
        .field("name", each.name)
        .field("totalGlobalMem", each.memory_bytes)
        .field("computeMajor", each.major)
        .field("computeMinor", each.minor)
        .field("numSms", each.multiprocessors)
        .end_object();
  json.end_array();
  if (trace.rank >= 0)
    json.key("distributedInfo")
        .begin_object()
        .field("backend", "nccl")
        .field("rank", trace.rank)
        .field("world_size", trace.world)
        .end_object();
  json.key("traceEvents").begin_array();
  for (const Lane& lane : trace.lanes) {
    if (lane.is_device() || lane.name.empty()) continue;
    json.begin_object().field("ph", "M").field("name", "thread_name").field("pid", lane.process);
    json.field("tid", lane.thread).key("args").begin_object().field("name", lane.name);
    json.end_object().end_object();
  }
  for (const size_t row : shuffled_rows(trace, seed)) write_row(trace, row, json);
  json.end_array().end_object();
  json.finish();
}

void write_nsys(const Trace& trace, uint64_t seed, const std::filesystem::path& path) {
  NsysWriter(trace, path).write(shuffled_rows(trace, seed + 1));
}

}  // namespace ridge::doctor::synthetic
