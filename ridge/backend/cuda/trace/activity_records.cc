#include "ridge/backend/cuda/trace/activity_records.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>

namespace ridge::cuda {
namespace {

const char* word_of(ActivityMemory memory) {
  switch (memory) {
    case ActivityMemory::kPageable:
      return "Pageable";
    case ActivityMemory::kPinned:
      return "Pinned";
    case ActivityMemory::kDevice:
    case ActivityMemory::kDeviceStatic:
      return "Device";
    case ActivityMemory::kArray:
      return "Array";
    case ActivityMemory::kManaged:
    case ActivityMemory::kManagedStatic:
      return "Managed";
  }
  return "Unknown";
}

const char* word_of(CopyKind copy) {
  switch (copy) {
    case CopyKind::kHostToDevice:
      return "HtoD";
    case CopyKind::kDeviceToHost:
      return "DtoH";
    case CopyKind::kDeviceToDevice:
      return "DtoD";
    case CopyKind::kHostToHost:
      return "HtoH";
    case CopyKind::kPeerToPeer:
      return "PtoP";
  }
  return "Unknown";
}

const char* words_of(SynchronizationKind kind) {
  switch (kind) {
    case SynchronizationKind::kEvent:
      return "Event Sync";
    case SynchronizationKind::kStreamWaitsEvent:
      return "Stream Wait Event";
    case SynchronizationKind::kStream:
      return "Stream Sync";
    case SynchronizationKind::kContext:
      return "Context Sync";
  }
  return "Unknown Sync";
}

const char* words_of(OverheadKind kind) {
  switch (kind) {
    case OverheadKind::kCompiler:
      return "Driver Compiler";
    case OverheadKind::kBufferFlush:
      return "Buffer Flush";
    case OverheadKind::kInstrumentation:
      return "Instrumentation";
    case OverheadKind::kResource:
      return "Resource";
    case OverheadKind::kModuleLoading:
      return "Runtime Triggered Module Loading";
    case OverheadKind::kFunctionLoading:
      return "Lazy Function Loading";
    case OverheadKind::kCommandBufferFull:
      return "Command Buffer Full";
    case OverheadKind::kBufferRequest:
      return "Activity Buffer Request";
    case OverheadKind::kManagedMemory:
      return "UVM Activity Init";
  }
  return "Unknown Overhead";
}

std::string three(const int32_t (&sizes)[3]) {
  return fmt::format("[{}, {}, {}]", sizes[0], sizes[1], sizes[2]);
}

int32_t stream_number(uint32_t stream) {
  return stream <= uint32_t{std::numeric_limits<int32_t>::max()} ? static_cast<int32_t>(stream)
                                                                 : -1;
}

}  // namespace

template <typename Record>
void ActivityRecords::take(std::span<const std::byte> bytes,
                           void (ActivityRecords::*add_it)(const Record&)) {
  if (bytes.size() < sizeof(Record)) {
    ++lost_;
    return;
  }
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  (this->*add_it)(record);
}

void ActivityRecords::add(std::span<const std::byte> record) {
  ActivityKind kind{};
  if (record.size() < sizeof kind) {
    ++lost_;
    return;
  }
  std::memcpy(&kind, record.data(), sizeof kind);
  switch (kind) {
    case ActivityKind::kKernel:
    case ActivityKind::kConcurrentKernel:
      return take(record, &ActivityRecords::add_kernel);
    case ActivityKind::kCopy:
      return take(record, &ActivityRecords::add_copy);
    case ActivityKind::kSet:
      return take(record, &ActivityRecords::add_set);
    case ActivityKind::kDriverCall:
    case ActivityKind::kRuntimeCall:
      return take(record, &ActivityRecords::add_call);
    case ActivityKind::kOverhead:
      return take(record, &ActivityRecords::add_overhead);
    case ActivityKind::kSynchronization:
      return take(record, &ActivityRecords::add_wait);
    case ActivityKind::kEvent:
      return take(record, &ActivityRecords::add_recorded);
    case ActivityKind::kExternalCorrelation:
      return take(record, &ActivityRecords::add_external);
    case ActivityKind::kInvalid:
      break;
  }
}

TraceEvent* ActivityRecords::add_event(uint64_t start,
                                       uint64_t end,
                                       std::string name,
                                       const char* category) {
  // A device that ran out of memory for times gives 0.
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (start == 0 || end < start || end > kMost) {
    ++lost_;
    return nullptr;
  }
  TraceEvent& event = events_.emplace_back();
  event.name = std::move(name);
  event.category = category;
  event.start_ns = static_cast<int64_t>(start);
  event.duration_ns = static_cast<int64_t>(end - start);
  return &event;
}

template <typename Record>
TraceEvent* ActivityRecords::add_work(const Record& record,
                                      std::string name,
                                      const char* category) {
  TraceEvent* const event = add_event(record.start, record.end, std::move(name), category);
  if (event == nullptr) return nullptr;
  event->stream = stream_number(record.stream);
  event->correlation = record.correlation;
  event->args = {{"device", int64_t{record.device}}, {"context", int64_t{record.context}}};
  devices_[record.context] = record.device;
  (record.graph_node != 0 ? graphs_[record.correlation] : work_).push_back(events_.size() - 1);
  if (record.graph_node != 0) {
    event->args.emplace_back("graph id", int64_t{record.graph});
    event->args.emplace_back("graph node id", static_cast<int64_t>(record.graph_node));
  }
  return event;
}

void ActivityRecords::add_kernel(const KernelActivity& record) {
  TraceEvent* const event = add_work(record, kernel_name(record.name), "kernel");
  if (event == nullptr) return;
  event->args.emplace_back("registers per thread", int64_t{record.registers});
  event->args.emplace_back("shared memory",
                           int64_t{record.static_shared_bytes} + record.dynamic_shared_bytes);
  event->args.emplace_back("grid", three(record.grid));
  event->args.emplace_back("block", three(record.block));
  if (record.local_bytes_per_thread != 0)
    event->args.emplace_back("local memory per thread", int64_t{record.local_bytes_per_thread});
}

void ActivityRecords::add_copy(const CopyActivity& record) {
  TraceEvent* const event = add_work(
      record,
      fmt::format(
          "Memcpy {} ({} -> {})", word_of(record.copy), word_of(record.from), word_of(record.to)),
      "gpu_memcpy");
  if (event != nullptr) event->args.emplace_back("bytes", static_cast<int64_t>(record.bytes));
}

void ActivityRecords::add_set(const SetActivity& record) {
  const auto memory = static_cast<ActivityMemory>(record.memory);
  TraceEvent* const event =
      add_work(record, fmt::format("Memset ({})", word_of(memory)), "gpu_memset");
  if (event != nullptr) event->args.emplace_back("bytes", static_cast<int64_t>(record.bytes));
}

void ActivityRecords::add_call(const CallActivity& record) {
  const CallDomain domain =
      record.kind == ActivityKind::kDriverCall ? CallDomain::kDriver : CallDomain::kRuntime;
  TraceEvent* const event =
      add_event(record.start,
                record.end,
                call_name(domain, record.call),
                domain == CallDomain::kDriver ? "cuda_driver" : "cuda_runtime");
  if (event == nullptr) return;
  event->thread = record.thread;
  event->correlation = record.correlation;
  if (record.result != 0) event->args.emplace_back("result", int64_t{record.result});
}

void ActivityRecords::add_overhead(const OverheadActivity& record) {
  TraceEvent* const event =
      add_event(record.start, record.end, words_of(record.overhead), "overhead");
  if (event == nullptr) return;
  // The first thread has the number of the process.
  event->thread = record.object == ActivityObject::kThread ? record.object_ids[1] : ::getpid();
}

void ActivityRecords::add_wait(const SynchronizationActivity& record) {
  const char* const words = words_of(record.synchronization);
  TraceEvent* const event = add_event(record.start, record.end, words, "cuda_sync");
  if (event == nullptr) return;
  event->stream = stream_number(record.stream);
  event->correlation = record.correlation;
  event->args = {{"cuda_sync_kind", std::string(words)}, {"context", int64_t{record.context}}};
  if (record.event != kNoActivityId)
    event->args.emplace_back("wait_on_cuda_event_id", int64_t{record.event});
  waits_.push_back({events_.size() - 1, record.context, record.event, record.correlation});
}

void ActivityRecords::add_recorded(const EventActivity& record) { recorded_.push_back(record); }

void ActivityRecords::add_external(const ExternalCorrelationActivity& record) {
  if (record.external == ExternalKind::kCustom0) external_[record.correlation] = record.id;
}

// An event stands for what it was last recorded for before the wait; calls are numbered in their
// order.
void ActivityRecords::join_waits() {
  const auto key = [](const EventActivity& e) {
    return std::tuple(e.context, e.event, e.correlation);
  };
  std::sort(recorded_.begin(),
            recorded_.end(),
            [&](const EventActivity& a, const EventActivity& b) { return key(a) < key(b); });
  for (const Wait& wait : waits_) {
    TraceEvent& event = events_[wait.at];
    if (const auto device = devices_.find(wait.context); device != devices_.end())
      event.args.emplace_back("device", int64_t{device->second});
    const auto after = std::partition_point(
        recorded_.begin(), recorded_.end(), [&](const EventActivity& recorded) {
          return key(recorded) < std::tuple(wait.context, wait.event, wait.correlation);
        });
    if (after == recorded_.begin()) continue;
    const EventActivity& last = *(after - 1);
    if (last.context != wait.context || last.event != wait.event) continue;
    event.args.emplace_back("wait_on_stream", int64_t{last.stream});
    event.args.emplace_back("wait_on_cuda_event_record_corr_id", int64_t{last.correlation});
  }
}

// Null: no scope of ours launched it.
const char* ActivityRecords::scope_of(const TraceEvent& event) const {
  if (event.thread != 0 || !event.correlation) return nullptr;
  const auto found = external_.find(static_cast<uint32_t>(*event.correlation));
  return found == external_.end() ? nullptr : names_.scope(found->second);
}

// CUPTI reports the nodes of a graph, not the scopes that queued them. A graph runs what a run of
// its launches does, in the same order, so one that is in the recording says which scope each node
// is of.
std::unordered_map<size_t, const char*> ActivityRecords::scopes_of_graphs() const {
  std::vector<size_t> launched = work_;
  std::sort(launched.begin(), launched.end(), [&](size_t a, size_t b) {
    return std::pair(*events_[a].correlation, a) < std::pair(*events_[b].correlation, b);
  });
  std::unordered_map<size_t, const char*> scopes;
  for (const auto& [correlation, work] : graphs_) {
    std::vector<size_t> nodes = work;
    std::sort(nodes.begin(), nodes.end(), [&](size_t a, size_t b) {
      return std::pair(events_[a].start_ns, a) < std::pair(events_[b].start_ns, b);
    });
    auto same = std::search(
        launched.begin(), launched.end(), nodes.begin(), nodes.end(), [&](size_t a, size_t b) {
          return events_[a].name == events_[b].name;
        });
    if (same == launched.end()) continue;
    for (const size_t node : nodes) scopes.emplace(node, scope_of(events_[*same++]));
  }
  return scopes;
}

void ActivityRecords::join_sites() {
  const std::unordered_map<size_t, const char*> in_graphs = scopes_of_graphs();
  for (size_t i = 0; i < events_.size(); ++i) {
    const auto found = in_graphs.find(i);
    const char* const scope = found == in_graphs.end() ? scope_of(events_[i]) : found->second;
    if (scope != nullptr) events_[i].args.emplace_back("site", std::string(scope));
  }
}

// Libraries' kernels have the names of C++.
std::string ActivityRecords::kernel_name(const char* name) {
  if (name == nullptr) return "unnamed kernel";
  const auto [known, is_new] = kernel_names_.try_emplace(name);
  if (is_new) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
    known->second = status == 0 && plain ? plain.get() : name;
  }
  return known->second;
}

std::string ActivityRecords::call_name(CallDomain domain, uint32_t call) {
  const auto [known, is_new] = call_names_.try_emplace({domain, call});
  if (is_new) {
    const char* const name = names_.call(domain, call);
    const char* const kind = domain == CallDomain::kDriver ? "driver" : "runtime";
    known->second = name != nullptr ? name : fmt::format("{} call {}", kind, call);
  }
  return known->second;
}

void ActivityRecords::finish(TraceLog& log) {
  join_waits();
  join_sites();
  log.events.insert(log.events.end(),
                    std::make_move_iterator(events_.begin()),
                    std::make_move_iterator(events_.end()));
  log.dropped += lost_;
  *this = ActivityRecords(std::move(names_));
}

}  // namespace ridge::cuda
