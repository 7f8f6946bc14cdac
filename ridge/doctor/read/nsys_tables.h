// The tables of an nsys export. Tables and columns are looked up by name, since they differ from
// version to version, and every one of them may be missing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ridge/base/function_ref.h"
#include "ridge/doctor/read/sqlite_file.h"
#include "ridge/doctor/trace/intervals.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

class NsysTables {
 public:
  using Columns = std::span<const std::string_view>;
  using Labels = std::map<int64_t, std::string>;  ///< Of an ENUM_ table, in lower case.

  /// Reads the texts that rows refer to. Trouble with any table becomes a warning of `builder`.
  NsysTables(SqliteFile& file, TraceBuilder& builder);

  void each(std::string_view table, Columns columns, FunctionRef<void(const SqliteRow&)> row);
  Labels labels(std::string_view table);
  /// The columns 0 and 1 of a row: its start and end in ns. Nothing, and a warning, where they are
  /// no times.
  std::optional<Interval> times(std::string_view table, const SqliteRow& row);
  /// The text of a number in StringIds; null: there is none.
  const std::string* text(std::optional<int64_t> id) const;
  /// The text of the number in a column, or what is written in its place; empty: there is none.
  /// Valid while the row is.
  std::string_view text_of(const SqliteRow& row, int column) const;

 private:
  SqliteFile& file_;
  TraceBuilder& builder_;
  std::unordered_map<int64_t, std::string> texts_;  // StringIds
};

/// Adds what host threads did: calls of CUDA, ranges, waits for the operating system, the
/// profiler's own. Returns the process of the calls, where it is one.
std::optional<int64_t> read_host_events(NsysTables& tables, TraceBuilder& builder);

/// The gpu of a process's device: a process counts only the devices that it may see.
using GpuNumbers = std::map<std::pair<int64_t, int64_t>, int64_t>;

/// Adds what devices did: kernels, whole graphs, copies, sets, and who waits for whom. Rows that
/// name no process are taken to be of `process`.
void read_device_events(NsysTables& tables,
                        TraceBuilder& builder,
                        const GpuNumbers& gpu_of,
                        std::optional<int64_t> process);

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

/// The correlation in a column; -1 where it is none that CUPTI could have given.
inline int64_t correlation_of(std::optional<int64_t> number) {
  return number && *number > 0 && *number <= 0xffffffff ? *number : -1;
}

}  // namespace ridge::doctor
