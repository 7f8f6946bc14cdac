#include "ridge/doctor/replay/event_waits.h"

namespace ridge::doctor {

EventWaits::EventWaits(const Timeline& timeline) : timeline_(timeline), trace_(timeline.trace) {
  for (size_t row = 0; row < trace_.size(); ++row) {
    const int64_t correlation = trace_.correlation[row];
    if (correlation < 0) continue;
    if (trace_.kind[row] == EventKind::kSynchronization)
      row_of_correlation_.emplace(correlation, row);
    if (trace_.kind[row] != EventKind::kRuntime) continue;
    const auto call = timeline.call_of_row.find(row);
    if (call != timeline.call_of_row.end()) call_of_correlation_.emplace(correlation, call->second);
  }
}

size_t EventWaits::row_of(const Call& call) const {
  const auto row = row_of_correlation_.find(trace_.correlation[call.row]);
  return row == row_of_correlation_.end() ? Timeline::kNone : row->second;
}

const Sync* EventWaits::named_sync(const Call& call) const {
  const size_t row = row_of(call);
  if (row == Timeline::kNone || trace_.detail[row] == Trace::kNone) return nullptr;
  return &trace_.syncs[trace_.detail[row]];
}

uint32_t EventWaits::named_stream(const Call& call) const {
  const size_t row = row_of(call);
  if (row == Timeline::kNone) return Trace::kNone;
  const Lane& lane = trace_.lane_of(row);
  return lane.is_device() && lane.thread >= 0 ? trace_.lane[row] : Trace::kNone;
}

const EventWaits::Call* EventWaits::record_for(const Call& wait,
                                               size_t position,
                                               uint32_t waiting) const {
  if (const Sync* named = named_sync(wait); named != nullptr && named->waits_on_correlation >= 0) {
    const auto record = call_of_correlation_.find(named->waits_on_correlation);
    return record == call_of_correlation_.end() ? nullptr : &timeline_.calls[record->second];
  }
  // Otherwise it is the last record before the wait, on the same thread, of work on another stream
  // than the one that waits. A program records nearby: the whole trace is not searched.
  const auto& thread = timeline_.threads.at(wait.lane);
  const size_t farthest = position > 4096 ? position - 4096 : 0;
  for (size_t at = position; at-- > farthest;) {
    const Call& call = timeline_.calls[thread[at]];
    if (!call.name.starts_with("EventRecord")) continue;
    const uint32_t stream = timeline_.stream_before(wait.lane, at);
    if (stream == Trace::kNone) return nullptr;
    if (stream != waiting) return &call;
  }
  return nullptr;
}

uint32_t EventWaits::recorded_stream(const Call& wait, const Call& record) const {
  if (const Sync* named = named_sync(wait); named != nullptr && named->waits_on_stream >= 0) {
    for (const auto& [lane, stream] : timeline_.streams)
      if (trace_.lanes[lane].thread == named->waits_on_stream) return lane;
    return Trace::kNone;
  }
  return timeline_.stream_before(record.lane, timeline_.calls_before(record.lane, record.start));
}

}  // namespace ridge::doctor
