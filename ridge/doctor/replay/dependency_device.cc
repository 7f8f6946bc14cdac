// What device work waits for: its call, its stream, events of other streams; and full queues.
#include <algorithm>

#include "ridge/doctor/replay/dependency_builder.h"

namespace ridge::doctor {

void DependencyBuilder::order_devices() {
  for (const auto& [lane, stream] : streams_) {
    for (size_t i = 0; i < stream.size(); ++i) {
      const Work& work = work_[stream[i]];
      if (work.call != kNoCall)
        add_edge(calls_[work.call].node, work.node, EdgeKind::kLaunch, false);
      else if (i == 0 || work.issued < begin_)
        add_edge(0, work.node, EdgeKind::kLaunch, false);
      if (i == 0) continue;
      const Work& before = work_[stream[i - 1]];
      add_edge(before.node, work.node, EdgeKind::kStream);
    }
  }
}

size_t DependencyBuilder::last_given(uint32_t lane, int64_t before) const {
  const auto found = streams_.find(lane);
  if (found == streams_.end()) return kNoCall;
  const Stream& stream = found->second;
  const auto after = std::partition_point(
      stream.begin(), stream.end(), [&](size_t work) { return work_[work].issued < before; });
  return after == stream.begin() ? kNoCall : *(after - 1);
}

size_t DependencyBuilder::first_given(uint32_t lane, int64_t from) const {
  const auto found = streams_.find(lane);
  if (found == streams_.end()) return kNoCall;
  const Stream& stream = found->second;
  const auto at = std::partition_point(
      stream.begin(), stream.end(), [&](size_t work) { return work_[work].issued < from; });
  return at == stream.end() ? kNoCall : *at;
}

uint32_t DependencyBuilder::stream_before(uint32_t lane, size_t position) const {
  const auto& thread = threads_.at(lane);
  while (position-- > 0)
    if (const auto own = work_of_call_.find(thread[position]); own != work_of_call_.end())
      return trace_.lane[work_[own->second.front()].row];
  return Trace::kNone;
}

uint32_t DependencyBuilder::stream_after(uint32_t lane, size_t position) const {
  const auto& thread = threads_.at(lane);
  while (++position < thread.size())
    if (const auto own = work_of_call_.find(thread[position]); own != work_of_call_.end())
      return trace_.lane[work_[own->second.front()].row];
  return Trace::kNone;
}

const Sync* DependencyBuilder::told_of(const Call& call) const {
  if (trace_.correlation[call.row] < 0) return nullptr;
  const auto sync = sync_of_.find(trace_.correlation[call.row]);
  if (sync == sync_of_.end() || trace_.detail[sync->second] == Trace::kNone) return nullptr;
  return &trace_.syncs[trace_.detail[sync->second]];
}

uint32_t DependencyBuilder::told_stream(const Call& call) const {
  if (trace_.correlation[call.row] < 0) return Trace::kNone;
  const auto sync = sync_of_.find(trace_.correlation[call.row]);
  if (sync == sync_of_.end()) return Trace::kNone;
  const Lane& lane = trace_.lane_of(sync->second);
  return lane.is_device() && lane.thread >= 0 ? trace_.lane[sync->second] : Trace::kNone;
}

size_t DependencyBuilder::position_of(const Call& call) const {
  const auto& thread = threads_.at(call.lane);
  const auto at = std::partition_point(
      thread.begin(), thread.end(), [&](size_t other) { return calls_[other].start < call.start; });
  return static_cast<size_t>(at - thread.begin());
}

// The call that recorded the event which another waits for. Recorders that do not tell: the last
// record before it, on the same thread, of work on another stream than the one that waits.
const DependencyBuilder::Call* DependencyBuilder::record_for(const Call& wait,
                                                             size_t position,
                                                             uint32_t waiting) const {
  if (const Sync* told = told_of(wait); told != nullptr && told->waits_on_correlation >= 0) {
    const auto record = call_of_correlation_.find(told->waits_on_correlation);
    return record == call_of_correlation_.end() ? nullptr : &calls_[record->second];
  }
  // Records are looked for in what a program does near by, not through a whole trace.
  const auto& thread = threads_.at(wait.lane);
  const size_t farthest = position > 4096 ? position - 4096 : 0;
  for (size_t at = position; at-- > farthest;) {
    if (!without_vendor(trace_.name_text(calls_[thread[at]].row)).starts_with("EventRecord"))
      continue;
    const uint32_t stream = stream_before(wait.lane, at);
    if (stream == Trace::kNone) return nullptr;
    if (stream != waiting) return &calls_[thread[at]];
  }
  return nullptr;
}

uint32_t DependencyBuilder::recorded_stream(const Call& wait, const Call& record) const {
  if (const Sync* told = told_of(wait); told != nullptr && told->waits_on_stream >= 0) {
    for (const auto& [lane, works] : streams_)
      if (trace_.lanes[lane].thread == told->waits_on_stream) return lane;
    return Trace::kNone;
  }
  return stream_before(record.lane, position_of(record));
}

void DependencyBuilder::link_event(const Call& wait, size_t position) {
  uint32_t waiting = told_stream(wait);
  if (waiting == Trace::kNone) waiting = stream_after(wait.lane, position);
  if (waiting == Trace::kNone) return;
  const Call* record = record_for(wait, position, waiting);
  if (record == nullptr) return;
  const uint32_t recorded = recorded_stream(wait, *record);
  if (recorded == Trace::kNone || recorded == waiting) return;
  const size_t from = last_given(recorded, record->start);
  const size_t to = first_given(waiting, wait.start);
  if (from == kNoCall || to == kNoCall) return;
  // What began earlier cannot have waited: another event, or another stream, than was guessed.
  if (work_[from].end > work_[to].start + 1'000) {
    ++graph_.contradictions;
    return;
  }
  add_edge(work_[from].node, work_[to].node, EdgeKind::kEvent);
}

void DependencyBuilder::link_events() {
  for (const auto& [lane, thread] : threads_)
    for (size_t position = 0; position < thread.size(); ++position) {
      const Call& call = calls_[thread[position]];
      if (without_vendor(trace_.name_text(call.row)).starts_with("StreamWaitEvent"))
        link_event(call, position);
    }
}

void DependencyBuilder::limit_queues() {
  for (const auto& [index, slot] : queue_slot_) {
    const Call& call = calls_[index];
    const Work& begun = work_[static_cast<size_t>(slot)];
    if (begun.start <= call.end) add_edge(begun.node, call.last, EdgeKind::kQueue, false);
  }
}

}  // namespace ridge::doctor
