#include "ridge/doctor/analysis/launches.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace ridge::doctor {

int32_t busiest_device(const Trace& trace) {
  std::map<int32_t, int64_t> kernel_ns;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!is_device_work(trace.kind[row]) || !trace.lane_of(row).is_device()) continue;
    const bool is_kernel = trace.kind[row] == EventKind::kKernel;
    kernel_ns[trace.lane_of(row).device] += is_kernel ? trace.duration_ns[row] : 0;
  }
  int32_t device = -1;
  int64_t most = -1;
  for (const auto& [each, ns] : kernel_ns) {
    if (ns <= most) continue;
    most = ns;
    device = each;
  }
  return device;
}

std::vector<size_t> find_launches(const Trace& trace) {
  // Rows are by start, the longest first: of calls within each other the outer one comes first.
  std::unordered_map<int64_t, std::vector<size_t>> calls;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kRuntime && trace.correlation[row] >= 0)
      calls[trace.correlation[row]].push_back(row);
  std::vector<size_t> launched_by(trace.size(), trace.size());
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!is_device_work(trace.kind[row])) continue;
    const auto it = calls.find(trace.correlation[row]);
    if (it == calls.end()) continue;
    launched_by[row] = it->second.front();
    // Programs number their calls each for itself: a call that came later is another program's.
    for (size_t call : it->second) {
      if (trace.start_ns[call] > trace.start_ns[row]) continue;
      launched_by[row] = call;
      break;
    }
  }
  return launched_by;
}

Producers::Producers(const Trace& trace, int32_t device, const std::vector<size_t>& launched_by)
    : trace_(trace),
      launched_by_(launched_by),
      previous_(trace.size(), trace.size()),
      in_graph_(trace.size(), trace.size()) {
  find_streams(device);
  find_graphs();
  find_event_waits(device);
}

void Producers::find_streams(int32_t device) {
  std::map<uint32_t, std::vector<size_t>> by_lane;
  for (size_t row = 0; row < trace_.size(); ++row)
    if (is_device_work(trace_.kind[row]) && trace_.lane_of(row).device == device)
      by_lane[trace_.lane[row]].push_back(row);
  for (auto& [lane, rows] : by_lane) {
    for (size_t i = 1; i < rows.size(); ++i) previous_[rows[i]] = rows[i - 1];
    Stream stream{.lane = lane, .rows = std::move(rows), .launched = {}};
    for (size_t row : stream.rows)
      if (is_launched(row)) stream.launched.push_back(row);
    std::sort(stream.launched.begin(), stream.launched.end(), [this](size_t a, size_t b) {
      return std::pair(call_start(a), a) < std::pair(call_start(b), b);
    });
    streams_.push_back(std::move(stream));
  }
}

void Producers::find_graphs() {
  std::unordered_map<size_t, std::vector<size_t>> nodes;  // By the call that launched them.
  for (const Stream& stream : streams_)
    for (size_t row : stream.launched) nodes[launched_by_[row]].push_back(row);
  for (auto& [call, rows] : nodes) {
    if (rows.size() < 2) continue;
    std::sort(rows.begin(), rows.end(), [this](size_t a, size_t b) {
      return std::pair(trace_.end_ns(a), a) < std::pair(trace_.end_ns(b), b);
    });
    for (size_t row : rows) {
      const auto after = std::partition_point(rows.begin(), rows.end(), [this, row](size_t other) {
        return trace_.end_ns(other) <= trace_.start_ns[row];
      });
      if (after != rows.begin() && *(after - 1) != row) in_graph_[row] = *(after - 1);
    }
  }
}

const Producers::Stream* Producers::stream_of(int64_t process, int64_t thread) const {
  for (const Stream& stream : streams_) {
    const Lane& lane = trace_.lanes[stream.lane];
    if (lane.process == process && lane.thread == thread) return &stream;
  }
  return nullptr;
}

void Producers::find_event_waits(int32_t device) {
  std::unordered_map<int64_t, size_t> calls;
  for (size_t row = trace_.size(); row-- > 0;)
    if (trace_.kind[row] == EventKind::kRuntime && trace_.correlation[row] >= 0)
      calls[trace_.correlation[row]] = row;
  const auto call_ns = [&](int64_t correlation, int64_t otherwise) {
    const auto it = calls.find(correlation);
    return it == calls.end() ? otherwise : trace_.start_ns[it->second];
  };
  for (size_t row = 0; row < trace_.size(); ++row) {
    if (trace_.kind[row] != EventKind::kSynchronization || trace_.detail[row] == Trace::kNone)
      continue;
    const Sync& sync = trace_.syncs[trace_.detail[row]];
    const Lane& lane = trace_.lane_of(row);
    if (sync.what != Sync::What::kStreamWaitsEvent || lane.device != device) continue;
    EventWait wait{.waiting = stream_of(lane.process, lane.thread),
                   .other = stream_of(lane.process, sync.waits_on_stream)};
    if (!wait.waiting || !wait.other || wait.waiting == wait.other) continue;
    wait.waited_ns = call_ns(trace_.correlation[row], trace_.start_ns[row]);
    wait.recorded_ns = call_ns(sync.waits_on_correlation, wait.waited_ns);
    join(wait);
  }
  std::sort(by_event_.begin(), by_event_.end());
}

// The first operation that is launched after the wait waits for the last one that was launched on
// the other stream before the event was recorded.
void Producers::join(const EventWait& wait) {
  has_event_waits_ = true;
  const auto launched_before = [this](const std::vector<size_t>& rows, int64_t t) {
    return std::partition_point(
        rows.begin(), rows.end(), [this, t](size_t row) { return call_start(row) < t; });
  };
  const auto consumer = launched_before(wait.waiting->launched, wait.waited_ns);
  const auto producer = launched_before(wait.other->launched, wait.recorded_ns);
  if (consumer == wait.waiting->launched.end() || producer == wait.other->launched.begin()) return;
  by_event_.emplace_back(*consumer, *(producer - 1));
}

std::vector<size_t> Producers::of(size_t row) const {
  std::vector<size_t> rows;
  if (previous_[row] < trace_.size()) rows.push_back(previous_[row]);
  if (in_graph_[row] < trace_.size()) rows.push_back(in_graph_[row]);
  auto it = std::lower_bound(by_event_.begin(), by_event_.end(), std::pair<size_t, size_t>(row, 0));
  for (; it != by_event_.end() && it->first == row; ++it) rows.push_back(it->second);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace ridge::doctor
