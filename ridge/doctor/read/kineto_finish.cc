// The last step of reading a Kineto trace, for which all rows must be there.
#include <algorithm>

#include "ridge/doctor/read/kineto_args.h"
#include "ridge/doctor/read/kineto_rows.h"

namespace ridge::doctor {
namespace {

constexpr int64_t kLost = -1;  // the duration of rows that are to be dropped

/// The range of times that holds most of a trace: rows that begin farther off than `reach`, or last
/// longer, do not belong to it.
struct Extent {
  int64_t middle = 0, reach = 0;
  bool has(int64_t start, int64_t duration) const {
    return duration <= reach && start - middle <= reach && middle - start <= reach;
  }
};

/// Recorders have closed their windows at the end of all time, and begun events at 0.
Extent extent_of(std::vector<int64_t> starts) {
  constexpr int64_t kDay = 86'400'000'000'000, kMost = int64_t{1} << 60;
  if (starts.size() < 5) return {.reach = 2 * kMost};  // too few to tell which are far off
  const auto quantile = [&](size_t quarter) {
    const auto at = starts.begin() + static_cast<std::ptrdiff_t>((starts.size() - 1) * quarter / 4);
    std::nth_element(starts.begin(), at, starts.end());
    return *at;
  };
  const int64_t spread = std::min(quantile(3) - quantile(1), kMost / 1000);
  return {.middle = quantile(2), .reach = std::max(kDay, 1000 * spread)};
}

/// `values` without those whose `is_kept` is false.
template <typename T>
void keep(std::vector<T>& values, const std::vector<bool>& is_kept) {
  size_t to = 0;
  for (size_t from = 0; from < values.size(); ++from)
    if (is_kept[from]) values[to++] = values[from];
  values.resize(to);
}

}  // namespace

void KinetoRows::finish() {
  close_marks();
  drop_lost_rows();
  start_at_zero();
  name_lanes();
  join_calls();
  std::sort(trace_.devices.begin(), trace_.devices.end(), [](const Device& a, const Device& b) {
    return a.number < b.number;
  });
}

void KinetoRows::close_marks() {
  int64_t in_vain = pair_marks(std::move(marks_), [this](uint32_t row, int64_t duration_ns) {
    trace_.duration_ns[row] = duration_ns < 0 ? kLost : duration_ns;
    if (duration_ns < 0) builder_.warn("events that begin and do not end were left out");
  });
  while (in_vain-- > 0) builder_.warn("events that end and did not begin were left out");
}

void KinetoRows::drop_lost_rows() {
  const Extent extent = extent_of(trace_.start_ns);
  std::vector<bool> is_kept(trace_.size());
  bool is_any_lost = false;
  for (size_t row = 0; row < trace_.size(); ++row) {
    const bool is_lost = trace_.duration_ns[row] == kLost;
    is_kept[row] = !is_lost && extent.has(trace_.start_ns[row], trace_.duration_ns[row]);
    if (!is_kept[row] && !is_lost)
      builder_.warn("events at times far from all others were left out");
    is_any_lost = is_any_lost || !is_kept[row];
  }
  if (!is_any_lost) return;
  keep(trace_.kind, is_kept);
  keep(trace_.name, is_kept);
  keep(trace_.lane, is_kept);
  keep(trace_.start_ns, is_kept);
  keep(trace_.duration_ns, is_kept);
  keep(trace_.correlation, is_kept);
  keep(trace_.detail, is_kept);
}

void KinetoRows::start_at_zero() {
  constexpr int64_t kEarliestDate = 1'000'000'000'000'000'000;  // September 2001
  if (trace_.size() == 0) {
    trace_.base_ns = base_ns_;
    return;
  }
  const int64_t zero = *std::min_element(trace_.start_ns.begin(), trace_.start_ns.end());
  for (int64_t& start : trace_.start_ns) start -= zero;
  // Without a base, times count from 1970 where they are that large, else from an unknown start.
  if (has_base_ || zero >= kEarliestDate) trace_.base_ns = base_ns_ + zero;
}

void KinetoRows::name_lanes() {
  for (Lane& lane : trace_.lanes) {
    const auto named = lane_names_.find({lane.process, lane.thread});
    if (named != lane_names_.end()) lane.name = named->second;
  }
}

/// Copies by calls that block are not asynchronous; and work takes from its call what it lacks.
void KinetoRows::join_calls() {
  if (calls_.empty()) return;
  for (size_t row = 0; row < trace_.size(); ++row) {
    const EventKind kind = trace_.kind[row];
    if (!is_device_work(kind)) continue;
    const auto found = calls_.find(trace_.correlation[row]);
    if (found == calls_.end()) continue;
    const Call& call = found->second;
    if (kind == EventKind::kKernel) {
      if (trace_.detail[row] == Trace::kNone && call.launch != Trace::kNone)
        builder_.set(row, call_launches_[call.launch]);
      continue;
    }
    Transfer& transfer = trace_.transfers[trace_.detail[row]];
    transfer.is_async = !call.is_blocking;
    if (transfer.bytes < 0) transfer.bytes = call.bytes;
  }
}

}  // namespace ridge::doctor
