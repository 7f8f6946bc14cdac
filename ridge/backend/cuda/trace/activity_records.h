// Records of CUPTI, made into events of a trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ridge/backend/cuda/trace/cupti_api.h"
#include "ridge/base/trace/trace_event.h"

namespace ridge::cuda {

/// Takes the records of a recording in any order, and joins them in the end: work with the scope
/// that launched it, a wait for an event with the call that recorded it. Work of a graph has the
/// scopes of the same work that was launched piece by piece, where the recording has that, else the
/// scope that launched the graph. The categories, names and
/// arguments are those of Kineto, so what reads its traces reads these.
class ActivityRecords {
 public:
  struct Names {
    /// The name of a call, such as "cuLaunchKernel"; null where it is not known.
    std::function<const char*(CallDomain, uint32_t)> call;
    /// The name of the scope that an external correlation stands for; null where the scope is none
    /// of ours.
    std::function<const char*(uint64_t)> scope;
  };
  explicit ActivityRecords(Names names) : names_(std::move(names)) {}

  /// One record, with all bytes behind its begin that may be read: the record itself does not say
  /// its size. Kinds that were not asked for are left out; one that is cut off, or lacks its times,
  /// is lost.
  void add(std::span<const std::byte> record);

  /// Adds the events to the log, and those lost to TraceLog::dropped.
  void finish(TraceLog& log);

 private:
  template <typename Record>
  void take(std::span<const std::byte> bytes, void (ActivityRecords::*add_it)(const Record&));
  void add_kernel(const KernelActivity& record);
  void add_copy(const CopyActivity& record);
  void add_set(const SetActivity& record);
  void add_call(const CallActivity& record);
  void add_overhead(const OverheadActivity& record);
  void add_wait(const SynchronizationActivity& record);
  void add_recorded(const EventActivity& record);
  void add_external(const ExternalCorrelationActivity& record);
  template <typename Record>
  TraceEvent* add_work(const Record& record, std::string name, const char* category);
  TraceEvent* add_event(uint64_t start, uint64_t end, std::string name, const char* category);
  void join_waits();
  void join_sites();
  const char* scope_of(const TraceEvent& event) const;
  std::unordered_map<size_t, const char*> scopes_of_graphs() const;
  std::string kernel_name(const char* name);
  std::string call_name(CallDomain domain, uint32_t call);

  struct Wait {
    size_t at;  ///< In events_.
    uint32_t context, event, correlation;
  };

  Names names_;
  std::vector<TraceEvent> events_;
  std::vector<size_t> work_;                                  ///< In events_, as it was added.
  std::unordered_map<uint32_t, std::vector<size_t>> graphs_;  ///< Likewise, by launch.
  std::vector<Wait> waits_;
  std::vector<EventActivity> recorded_;
  std::unordered_map<uint32_t, uint64_t> external_;  ///< By correlation.
  std::map<uint32_t, uint32_t> devices_;             ///< By context.
  std::unordered_map<const char*, std::string> kernel_names_;
  std::map<std::pair<CallDomain, uint32_t>, std::string> call_names_;
  int64_t lost_ = 0;
};

}  // namespace ridge::cuda
