#include "ridge/doctor/analysis/analysis.h"

#include <algorithm>
#include <utility>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/analysis/gaps.h"
#include "ridge/doctor/analysis/launches.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// Time in which a device worked, or on a CPU-only run the host: unions over the whole trace.
struct Work {
  Intervals busy, compute, copy, communication;
};

Work work_of(const Trace& trace, int32_t device) {
  std::vector<Interval> compute, copy, communication, busy;
  ByName communicates(trace, is_communication);
  for (size_t row = 0; row < trace.size(); ++row) {
    const EventKind kind = trace.kind[row];
    if (!is_device_work(kind) || trace.lane_of(row).device != device) continue;
    const Interval at{trace.start_ns[row], trace.end_ns(row)};
    busy.push_back(at);
    if (kind != EventKind::kKernel)
      copy.push_back(at);
    else if (communicates(row))
      communication.push_back(at);
    else
      compute.push_back(at);
  }
  return {union_of(std::move(busy)),
          union_of(std::move(compute)),
          union_of(std::move(copy)),
          union_of(std::move(communication))};
}

// Returns the index of the largest weight; Trace::kNone where all are 0.
uint32_t heaviest(const std::vector<int64_t>& weight) {
  const auto most = std::max_element(weight.begin(), weight.end());
  if (most == weight.end() || *most == 0) return Trace::kNone;
  return static_cast<uint32_t>(most - weight.begin());
}

uint32_t longest_lane(const Trace& trace, EventKind kind) {
  std::vector<int64_t> time(trace.lanes.size(), 0);
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == kind && !trace.lane_of(row).is_device())
      time[trace.lane[row]] += trace.duration_ns[row];
  return heaviest(time);
}

// The host thread with most launches; of a program on the CPU the one with most operator time, and
// where no operators were recorded the one with most in ranges.
uint32_t launching_lane_of(const Trace& trace, const Analysis& analysis) {
  if (analysis.is_cpu_only) {
    const uint32_t lane = longest_lane(trace, EventKind::kOperator);
    return lane != Trace::kNone ? lane : longest_lane(trace, EventKind::kRange);
  }
  std::vector<int64_t> launches(trace.lanes.size(), 0);
  for (const size_t call : analysis.launched_by)
    if (call < trace.size()) ++launches[trace.lane[call]];
  return heaviest(launches);
}

void measure_steps(Analysis& analysis) {
  std::vector<double> lengths;
  for (const Interval& window : analysis.steps.windows) lengths.push_back(ms(window.length()));
  if (lengths.empty()) return;
  std::sort(lengths.begin(), lengths.end());
  const size_t n = lengths.size();
  analysis.step_ms_median = (lengths[(n - 1) / 2] + lengths[n / 2]) / 2;
  analysis.step_ms_min = lengths.front();
  analysis.step_ms_max = lengths.back();
}

// Sums are of whole nanoseconds, so that they are exact whatever the order.
Breakdown mean_of(const Work& work, const Analysis& analysis) {
  Breakdown mean;
  if (analysis.steps.windows.empty()) return mean;
  const auto steps = static_cast<double>(analysis.steps.windows.size());
  const auto mean_ms = [steps](int64_t ns) { return ms(ns) / steps; };
  int64_t wall = 0;
  for (const Interval& window : analysis.steps.windows) wall += window.length();
  const auto inside = [&analysis](const Intervals& set) {
    int64_t ns = 0;
    for (const Interval& window : analysis.steps.windows) ns += total_length(clipped(set, window));
    return ns;
  };
  const int64_t busy = inside(work.busy);
  mean.wall = mean_ms(wall);
  mean.busy = mean_ms(busy);
  mean.idle = mean_ms(wall - busy);
  mean.compute = mean_ms(inside(work.compute));
  mean.copy = mean_ms(inside(work.copy));
  mean.communication = mean_ms(inside(work.communication));
  Gap sum;
  for (const Gap& gap : analysis.gaps) {
    sum.starved_ns += gap.starved_ns;
    sum.launch_ns += gap.launch_ns;
    sum.blocking_ns += gap.blocking_ns;
    sum.unknown_ns += gap.unknown_ns;
    for (size_t i = 0; i < kHostCauses; ++i) sum.by_cause_ns[i] += gap.by_cause_ns[i];
  }
  mean.starved = mean_ms(sum.starved_ns);
  mean.launch = mean_ms(sum.launch_ns);
  mean.blocking = mean_ms(sum.blocking_ns);
  mean.unknown = mean_ms(sum.unknown_ns);
  for (size_t i = 0; i < kHostCauses; ++i) mean.starved_by[i] = mean_ms(sum.by_cause_ns[i]);
  return mean;
}

std::vector<size_t> kernels_in_steps(const Trace& trace, const Analysis& analysis) {
  std::vector<size_t> rows;
  const std::vector<Interval>& windows = analysis.steps.windows;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kKernel || trace.lane_of(row).device != analysis.device)
      continue;
    const int64_t start = trace.start_ns[row];
    const auto after = std::upper_bound(
        windows.begin(), windows.end(), start, [](int64_t t, const Interval& window) {
          return t < window.begin;
        });
    if (after != windows.begin() && start < (after - 1)->end) rows.push_back(row);
  }
  return rows;
}

}  // namespace

Analysis analyse(const Trace& trace) { return analyse(trace, find_steps(trace)); }

Analysis analyse(const Trace& trace, Steps steps) {
  Analysis analysis;
  analysis.steps = std::move(steps);
  analysis.device = busiest_device(trace);
  analysis.is_cpu_only = analysis.device < 0;
  analysis.launched_by = find_launches(trace);
  analysis.kernels = kernels_in_steps(trace, analysis);
  analysis.launching_lane = launching_lane_of(trace, analysis);
  measure_steps(analysis);
  Work work = work_of(trace, analysis.device);
  if (analysis.is_cpu_only) work.busy = work.compute = host_compute(trace);
  const GapInput input{.trace = trace,
                       .device = analysis.device,
                       .launched_by = analysis.launched_by,
                       .compute = work.compute,
                       .launching_lane = analysis.launching_lane};
  analysis.gaps = analysis.is_cpu_only ? find_host_gaps(input, analysis.steps.windows)
                                       : find_gaps(input, analysis.steps.windows);
  analysis.breakdown = mean_of(work, analysis);
  return analysis;
}

}  // namespace ridge::doctor
