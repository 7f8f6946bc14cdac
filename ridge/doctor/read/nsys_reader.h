// Turns the tables of an nsys export into a trace. Tables and columns are looked up by name, since
// they differ from version to version, and every one of them may be missing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/doctor/read/sqlite_file.h"
#include "ridge/doctor/trace/intervals.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

class NsysReader {
 public:
  NsysReader(SqliteFile& file, Trace& trace) : file_(file), trace_(trace), builder_(trace) {}
  void read();

 private:
  using Columns = std::span<const std::string_view>;
  using Labels = std::map<int64_t, std::string>;  // of an ENUM_ table, in lower case

  // A call that recorded an event, by what a wait knows of it.
  struct EventRecord {
    int64_t process, key, correlation, stream;
    auto order() const { return std::tie(process, key, correlation); }
  };

  // ---- read_nsys.cc ----
  void each(std::string_view table, Columns columns, FunctionRef<void(const SqliteRow&)> row);
  std::optional<Interval> times(std::string_view table, const SqliteRow& row);
  std::string_view text_of(const SqliteRow& row, int column) const;
  Labels labels(std::string_view table);
  void read_texts();
  void read_session();
  void read_devices();
  void read_diagnostics();
  void read_ranks();
  void separate_processes();
  void find_blocking_transfers();

  // ---- nsys_host.cc ----
  uint32_t host_lane(std::optional<int64_t> global_thread);
  void read_thread_names();
  void read_calls();
  void read_ranges();
  void read_timed(std::string_view table, EventKind kind, std::string_view name);
  void read_scheduling();

  // ---- nsys_device.cc ----
  std::optional<uint32_t> device_lane(std::string_view table, const SqliteRow& row);
  std::optional<size_t> add_device_row(std::string_view table,
                                       const SqliteRow& row,
                                       EventKind kind,
                                       uint32_t name);
  void read_kernels();
  void read_graphs();
  void read_copies();
  void read_sets();
  void read_event_records();
  void read_synchronizations();
  Sync sync_of(const SqliteRow& row, const Labels& kinds) const;
  const EventRecord* find_record(const std::vector<EventRecord>& records,
                                 const EventRecord& wait) const;
  int64_t process_of(std::optional<int64_t> global) const;

  SqliteFile& file_;
  Trace& trace_;
  TraceBuilder builder_;
  std::unordered_map<int64_t, std::string> texts_;         // StringIds
  std::unordered_map<int64_t, std::string> thread_names_;  // by globalTid
  std::map<std::pair<int64_t, int64_t>, int64_t> gpu_of_;  // (process, ordinal) -> gpu
  std::set<int64_t> calling_threads_;                      // globalTid, of those that call CUDA
  std::vector<EventRecord> by_sync_, by_event_;            // sorted
  std::optional<int64_t> only_process_;                    // of the host calls, where it is one
};

/// The process of a globalTid or globalPid, and the thread of a globalTid.
inline int64_t process_in(int64_t global) {
  return static_cast<int64_t>(static_cast<uint64_t>(global) >> 24 & 0xffffff);
}
inline int64_t thread_in(int64_t global) { return global & 0xffffff; }

/// 0 for what is no count.
inline int32_t positive_int32(std::optional<int64_t> number) {
  const bool fits = number && *number >= 0 && *number <= 0x7fffffff;
  return fits ? static_cast<int32_t>(*number) : 0;
}

/// More than any machine has.
inline constexpr int64_t kMaxDevices = 4096;

/// Of a row's number; -1 where it is none that CUPTI could have given.
inline int64_t correlation_of(std::optional<int64_t> number) {
  return number && *number > 0 && *number <= 0xffffffff ? *number : -1;
}

}  // namespace ridge::doctor
