#include "ridge/doctor/analysis/gaps.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/analysis/host_blame.h"
#include "ridge/doctor/analysis/launches.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

// A stretch of at most this length is the device's own time to begin a kernel.
constexpr int64_t kLatencyNs = 50'000;
// An operation may have waited for work on another stream that ended at most this long before it.
constexpr int64_t kWakeNs = 20'000;

// The shares of one gap by what it waits for, however many windows it lies in.
struct GapShares {
  Interval at;
  size_t next = 0;
  Interval starved = {};
  Suspects suspects = {};
  Intervals launch = {}, blocking = {}, unknown = {};
  std::vector<size_t> blockers = {};
};

int64_t within(const Intervals& set, Interval window) { return total_length(clipped(set, window)); }

class Finder {
 public:
  explicit Finder(const GapInput& input)
      : input_(input),
        trace_(input.trace),
        blame_(trace_, input.launched_by),
        producers_(trace_, input.device, input.launched_by) {
    ByName communicates(trace_, is_communication);
    ByName waits(trace_, [](std::string_view name) { return holds(name, "streamwaitevent"); });
    for (size_t row = 0; row < trace_.size(); ++row) {
      if (trace_.kind[row] == EventKind::kRuntime && waits(row))
        wait_calls_.push_back(trace_.start_ns[row]);
      if (!is_device_work(trace_.kind[row]) || trace_.lane_of(row).device != input.device) continue;
      const bool computes = trace_.kind[row] == EventKind::kKernel && !communicates(row);
      (computes ? compute_ : others_).push_back(row);
    }
    others_by_end_ = others_;
    std::sort(others_by_end_.begin(), others_by_end_.end(), [this](size_t a, size_t b) {
      return std::pair(trace_.end_ns(a), a) < std::pair(trace_.end_ns(b), b);
    });
    std::vector<Interval> busy;
    for (size_t row : others_) busy.push_back({trace_.start_ns[row], trace_.end_ns(row)});
    others_busy_ = union_of(std::move(busy));
  }

  std::vector<Gap> find(const std::vector<Interval>& windows);

 private:
  GapShares shares_of(Interval at) const;
  void find_next(GapShares& shares) const;
  void split_launched(GapShares& shares, int64_t submitted) const;
  void split_rest(GapShares& shares, const Intervals& rest, int64_t ready) const;
  void end_without_launch(GapShares& shares) const;
  std::vector<size_t> producers_of(const GapShares& shares, int64_t submitted) const;
  std::optional<size_t> likely_producer(const GapShares& shares, int64_t submitted) const;
  Gap clip(const GapShares& shares, Interval window) const;
  uint32_t lane_of_call(size_t row) const {
    const size_t call = input_.launched_by[row];
    return call < trace_.size() ? trace_.lane[call] : Trace::kNone;
  }

  const GapInput& input_;
  const Trace& trace_;
  HostBlame blame_;
  Producers producers_;
  std::vector<size_t> compute_, others_;  // Rows of the device, by start.
  std::vector<size_t> others_by_end_;
  Intervals others_busy_;
  std::vector<int64_t> wait_calls_;
};

void Finder::find_next(GapShares& shares) const {
  const auto after = std::partition_point(compute_.begin(), compute_.end(), [&](size_t row) {
    return trace_.start_ns[row] < shares.at.end;
  });
  // A kernel of no length opens no stretch of compute; the one that ends the gap does.
  auto next = after;
  while (next != compute_.end() && trace_.duration_ns[*next] == 0) ++next;
  shares.next = next == compute_.end() ? trace_.size() : *next;
  if (shares.next == trace_.size()) {
    shares.suspects.launcher = input_.launching_lane;
  } else {
    shares.suspects.launcher = lane_of_call(shares.next);
  }
  if (after != compute_.begin()) shares.suspects.other = lane_of_call(*(after - 1));
}

// Without a record of what waits for what: work on another stream that ended just before, where a
// wait for an event was asked for between both launches.
std::optional<size_t> Finder::likely_producer(const GapShares& shares, int64_t submitted) const {
  if (producers_.has_event_waits()) return {};
  auto it = std::partition_point(others_by_end_.begin(), others_by_end_.end(), [&](size_t row) {
    return trace_.end_ns(row) <= shares.at.end;
  });
  for (; it != others_by_end_.begin(); --it) {
    const size_t row = *(it - 1);
    if (trace_.end_ns(row) < std::max(shares.at.begin, shares.at.end - kWakeNs)) return {};
    const size_t call = input_.launched_by[row];
    if (call >= trace_.size() || trace_.lane[row] == trace_.lane[shares.next]) continue;
    const auto wait =
        std::lower_bound(wait_calls_.begin(), wait_calls_.end(), trace_.start_ns[call]);
    if (wait != wait_calls_.end() && *wait < submitted) return row;
  }
  return {};
}

std::vector<size_t> Finder::producers_of(const GapShares& shares, int64_t submitted) const {
  std::vector<size_t> rows = producers_.of(shares.next);
  if (const std::optional<size_t> likely = likely_producer(shares, submitted))
    rows.push_back(*likely);
  // A kernel is held up also by the operations that its producers had to wait for.
  std::unordered_set<size_t> known(rows.begin(), rows.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (trace_.end_ns(rows[i]) <= shares.at.begin) continue;
    for (size_t row : producers_.of(rows[i]))
      if (known.insert(row).second) rows.push_back(row);
  }
  return rows;
}

// From `submitted` on: what a producer covers is its, and what remains is the device's own time to
// begin, once all that the kernel needs had ended.
void Finder::split_launched(GapShares& shares, int64_t submitted) const {
  const Interval launched{std::max(shares.at.begin, submitted), shares.at.end};
  if (launched.length() == 0) return;
  std::vector<Interval> covered;
  int64_t ready = launched.begin;
  for (size_t row : producers_of(shares, submitted)) {
    const Interval part{std::max(trace_.start_ns[row], launched.begin),
                        std::min(trace_.end_ns(row), launched.end)};
    if (part.length() == 0) continue;
    covered.push_back(part);
    shares.blockers.push_back(row);
    ready = std::max(ready, part.end);
  }
  shares.blocking = union_of(std::move(covered));
  split_rest(shares, difference_of({launched}, shares.blocking), ready);
}

void Finder::split_rest(GapShares& shares, const Intervals& rest, int64_t ready) const {
  for (const Interval& stretch : rest) {
    if (stretch.length() <= kLatencyNs) {
      shares.launch.push_back(stretch);
    } else if (stretch.begin < ready) {
      shares.unknown.push_back(stretch);
    } else {
      // It may have waited for another stream; the trace does not say so.
      const Intervals other = clipped(others_busy_, stretch);
      shares.unknown.insert(shares.unknown.end(), other.begin(), other.end());
      const Intervals own = difference_of({stretch}, other);
      shares.launch.insert(shares.launch.end(), own.begin(), own.end());
    }
  }
}

// Nothing computes any more: what still runs is waited for, and the rest is the host's.
void Finder::end_without_launch(GapShares& shares) const {
  shares.blocking = clipped(others_busy_, shares.at);
  shares.starved = shares.at;
  if (shares.blocking.empty()) return;
  for (size_t row : others_)
    if (trace_.start_ns[row] < shares.at.end && trace_.end_ns(row) > shares.at.begin &&
        trace_.duration_ns[row] > 0)
      shares.blockers.push_back(row);
}

GapShares Finder::shares_of(Interval at) const {
  GapShares shares{.at = at, .starved = {at.begin, at.begin}};
  find_next(shares);
  if (shares.next == trace_.size()) {
    end_without_launch(shares);
    return shares;
  }
  const size_t call = input_.launched_by[shares.next];
  if (call < trace_.size()) {
    const int64_t submitted = trace_.start_ns[call];
    shares.starved.end = std::max(at.begin, std::min(at.end, submitted));
    split_launched(shares, submitted);
    return shares;
  }
  // The call that launched it is not known.
  split_launched(shares, at.begin);
  shares.unknown = difference_of({at}, shares.blocking);
  shares.launch.clear();
  return shares;
}

Gap Finder::clip(const GapShares& shares, Interval window) const {
  Gap gap{.at = {std::max(shares.at.begin, window.begin), std::min(shares.at.end, window.end)},
          .next = shares.next};
  const Interval starved{std::max(shares.starved.begin, gap.at.begin),
                         std::min(shares.starved.end, gap.at.end)};
  const Intervals hungry =
      starved.length() > 0 ? difference_of({starved}, shares.blocking) : Intervals{};
  for (const Interval& stretch : hungry) {
    const CauseTimes times = blame_.blame(shares.starved, stretch, shares.suspects);
    for (size_t i = 0; i < kHostCauses; ++i) gap.by_cause_ns[i] += times[i];
  }
  gap.starved_ns = total_length(hungry);
  gap.launch_ns = within(shares.launch, gap.at);
  gap.blocking_ns = within(shares.blocking, gap.at);
  gap.unknown_ns = within(shares.unknown, gap.at);
  const bool is_last = shares.next == trace_.size();
  const int64_t from = is_last ? gap.at.begin : std::max(gap.at.begin, shares.starved.end);
  for (size_t row : shares.blockers)
    if (std::max(trace_.start_ns[row], from) < std::min(trace_.end_ns(row), gap.at.end))
      gap.blockers.push_back(row);
  if (gap.starved_ns > 0)
    gap.cause = static_cast<HostCause>(
        std::max_element(gap.by_cause_ns, gap.by_cause_ns + kHostCauses) - gap.by_cause_ns);
  return gap;
}

// The stretches between windows and beyond that a gap could reach into.
Interval span_of(const Trace& trace, const std::vector<Interval>& windows) {
  Interval span{windows.front().begin, windows.back().end};
  for (size_t row = 0; row < trace.size(); ++row) {
    span.begin = std::min(span.begin, trace.start_ns[row]);
    span.end = std::max(span.end, trace.end_ns(row));
  }
  return span;
}

// Calls `each` with every gap and window that have time in common.
template <typename Each>
void for_each_in(const Intervals& gaps, const std::vector<Interval>& windows, Each each) {
  auto gap = gaps.begin();
  for (const Interval& window : windows) {
    while (gap != gaps.end() && gap->end <= window.begin) ++gap;
    for (auto it = gap; it != gaps.end() && it->begin < window.end; ++it) each(*it, window);
  }
}

std::vector<Gap> Finder::find(const std::vector<Interval>& windows) {
  std::vector<Gap> found;
  for_each_in(difference_of({span_of(trace_, windows)}, input_.compute),
              windows,
              [&](const Interval& at, const Interval& window) {
                found.push_back(clip(shares_of(at), window));
              });
  return found;
}

}  // namespace

std::vector<Gap> find_gaps(const GapInput& input, const std::vector<Interval>& windows) {
  if (windows.empty()) return {};
  return Finder(input).find(windows);
}

std::vector<Gap> find_host_gaps(const GapInput& input, const std::vector<Interval>& windows) {
  if (windows.empty()) return {};
  const Trace& trace = input.trace;
  const HostBlame blame(trace, input.launched_by);
  std::vector<size_t> operators;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kOperator) operators.push_back(row);
  std::vector<Gap> found;
  for_each_in(
      difference_of({span_of(trace, windows)}, input.compute),
      windows,
      [&](const Interval& at, const Interval& window) {
        const auto next = std::partition_point(operators.begin(), operators.end(), [&](size_t row) {
          return trace.start_ns[row] < at.end;
        });
        Gap gap{.at = {std::max(at.begin, window.begin), std::min(at.end, window.end)},
                .next = next == operators.end() ? trace.size() : *next};
        gap.starved_ns = gap.at.length();
        const bool is_last = gap.next == trace.size();
        const CauseTimes times = blame.blame(
            at, gap.at, {.launcher = is_last ? input.launching_lane : trace.lane[gap.next]});
        std::copy(times.begin(), times.end(), gap.by_cause_ns);
        gap.cause =
            static_cast<HostCause>(std::max_element(times.begin(), times.end()) - times.begin());
        found.push_back(std::move(gap));
      });
  return found;
}

Intervals host_compute(const Trace& trace) {
  const std::vector<HostCause> causes = causes_of(trace);
  std::vector<std::vector<Interval>> fetching(trace.lanes.size()), working(trace.lanes.size());
  for (size_t row = 0; row < trace.size(); ++row) {
    const Interval at{trace.start_ns[row], trace.end_ns(row)};
    if (causes[row] == HostCause::kLoader)
      fetching[trace.lane[row]].push_back(at);
    else if (trace.kind[row] == EventKind::kOperator && causes[row] == HostCause::kOperators)
      working[trace.lane[row]].push_back(at);
  }
  std::vector<Interval> all;
  for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
    const Intervals own =
        difference_of(union_of(std::move(working[lane])), union_of(std::move(fetching[lane])));
    all.insert(all.end(), own.begin(), own.end());
  }
  return union_of(std::move(all));
}

}  // namespace ridge::doctor
