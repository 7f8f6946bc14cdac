#include "ridge/doctor/analysis/host_blame.h"

#include <algorithm>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

// Order of blame for causes that hold at the same time: marks of the program first, then calls of
// known cost, then the code around them.
constexpr HostCause kGravestFirst[] = {HostCause::kLoader,
                                       HostCause::kCheckpoint,
                                       HostCause::kModule,
                                       HostCause::kAllocation,
                                       HostCause::kPageable,
                                       HostCause::kSync,
                                       HostCause::kInterpreter,
                                       HostCause::kOffCpu,
                                       HostCause::kOperators};

// Smaller copies through pageable memory are staged; what is seen then is the wait for a result.
constexpr int64_t kLargeCopy = 64 << 10;
// A stretch between two operators or calls that is no longer is the code that issues them.
constexpr int64_t kIssuingNs = 100'000;
// The clocks of host and device may differ by this much, or a return be late by it.
constexpr int64_t kJustNs = 20'000;

size_t index(HostCause cause) { return static_cast<size_t>(cause); }

// Calls that copy through pageable memory block, whatever their name says.
void mark_pageable(const Trace& trace,
                   const std::vector<size_t>& launched_by,
                   std::vector<HostCause>& causes) {
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kCopy || trace.detail[row] == Trace::kNone) continue;
    const Transfer& copy = trace.transfers[trace.detail[row]];
    const bool pageable = copy.from == MemoryKind::kPageable || copy.to == MemoryKind::kPageable;
    if (!pageable || launched_by[row] >= trace.size()) continue;
    causes[launched_by[row]] =
        copy.bytes < 0 || copy.bytes >= kLargeCopy ? HostCause::kPageable : HostCause::kSync;
  }
}

}  // namespace

HostBlame::HostBlame(const Trace& trace, const std::vector<size_t>& launched_by)
    : trace_(trace), threads_(trace.lanes.size()) {
  add_causes(launched_by);
  for (Thread& thread : threads_) sort_out(thread);
}

void HostBlame::add_causes(const std::vector<size_t>& launched_by) {
  std::vector<HostCause> causes = causes_of(trace_);
  mark_pageable(trace_, launched_by, causes);
  // If a frame's name says nothing, its own time is the interpreter's; the time of its callees is
  // not.
  ByName tells_nothing(trace_, [](std::string_view name) {
    return cause_of(EventKind::kRange, name) == HostCause::kUnknown;
  });
  for (size_t row = 0; row < trace_.size(); ++row) {
    const HostCause cause = causes[row];
    if (cause == HostCause::kUnknown) continue;
    const Interval at{trace_.start_ns[row], trace_.end_ns(row)};
    Thread& thread = threads_[trace_.lane[row]];
    if (trace_.kind[row] == EventKind::kOverhead) {
      if (cause == HostCause::kModule) recorder_loads_.push_back(at);
      continue;
    }
    if (trace_.kind[row] == EventKind::kPython && cause == HostCause::kInterpreter &&
        tells_nothing(row))
      thread.frames.push_back(at);
    else
      thread.by_cause[index(cause)].push_back(at);
    const bool blocks = cause == HostCause::kSync || cause == HostCause::kPageable;
    if (blocks && trace_.kind[row] == EventKind::kRuntime) thread.blocking.push_back({at, cause});
  }
  recorder_loads_ = union_of(std::move(recorder_loads_));
}

void HostBlame::sort_out(Thread& thread) {
  Intervals covered;
  const auto add = [&covered](Intervals& stretches) {
    stretches = difference_of(union_of(std::move(stretches)), covered);
    covered.insert(covered.end(), stretches.begin(), stretches.end());
    covered = union_of(std::move(covered));
  };
  for (HostCause cause : kGravestFirst) add(thread.by_cause[index(cause)]);
  Intervals& operators = thread.by_cause[index(HostCause::kOperators)];
  for (size_t i = 1; i < covered.size(); ++i)
    if (covered[i].begin - covered[i - 1].end <= kIssuingNs)
      operators.push_back({covered[i - 1].end, covered[i].begin});
  operators = union_of(std::move(operators));
  add(thread.frames);
  std::sort(
      thread.blocking.begin(), thread.blocking.end(), [](const Blocking& a, const Blocking& b) {
        return std::pair(a.at.end, a.at.begin) < std::pair(b.at.end, b.at.begin);
      });
}

// The call that had blocked a thread until the device ran empty, if one had.
const HostBlame::Blocking* HostBlame::drained_by(uint32_t lane, Interval starved) const {
  const std::vector<Blocking>& blocking = threads_[lane].blocking;
  auto it = std::partition_point(blocking.begin(), blocking.end(), [&starved](const Blocking& b) {
    return b.at.end < starved.begin - kJustNs;
  });
  for (; it != blocking.end() && it->at.end <= starved.end; ++it)
    if (it->at.begin <= starved.begin) return &*it;
  return nullptr;
}

CauseTimes HostBlame::blame(Interval starved, Interval part, Suspects suspects) const {
  CauseTimes times{};
  Intervals rest;
  if (part.length() > 0) rest.push_back(part);
  const auto charge = [&](HostCause cause, const Intervals& stretches) {
    const Intervals charged = intersection_of(rest, clipped(stretches, part));
    times[index(cause)] += total_length(charged);
    rest = difference_of(rest, charged);
  };
  // All that a thread did but to wait for nobody knows whom.
  const auto charge_work = [&](const Thread& thread, const Blocking* drained) {
    for (HostCause cause : kGravestFirst) {
      if (cause == HostCause::kOffCpu) continue;
      if (cause == HostCause::kOperators && drained != nullptr) charge(drained->cause, {part});
      charge(cause, thread.by_cause[index(cause)]);
    }
  };
  charge(HostCause::kModule, recorder_loads_);
  if (suspects.launcher != Trace::kNone)
    charge_work(threads_[suspects.launcher], drained_by(suspects.launcher, starved));
  if (suspects.other != Trace::kNone && suspects.other != suspects.launcher)
    charge_work(threads_[suspects.other], nullptr);
  if (suspects.launcher != Trace::kNone) {
    charge(HostCause::kOffCpu, threads_[suspects.launcher].by_cause[index(HostCause::kOffCpu)]);
    charge(HostCause::kInterpreter, threads_[suspects.launcher].frames);
  }
  charge(HostCause::kUnknown, {part});
  return times;
}

}  // namespace ridge::doctor
