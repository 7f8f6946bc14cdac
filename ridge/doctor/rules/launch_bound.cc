#include "ridge/doctor/rules/launch_bound.h"

#include <algorithm>
#include <map>
#include <set>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

bool in_steps(const Analysis& analysis, int64_t time) {
  const auto& windows = analysis.steps.windows;
  const auto after = std::upper_bound(
      windows.begin(), windows.end(), time, [](int64_t at, const Interval& window) {
        return at < window.begin;
      });
  return after != windows.begin() && time < (after - 1)->end;
}

// How many launches wait on a stream when another joins them, itself counted.
std::vector<double> depths_of(const Trace& trace, const Analysis& analysis) {
  std::map<uint32_t, std::vector<size_t>> streams;
  for (size_t row = 0; row < trace.size(); ++row)
    if (is_device_work(trace.kind[row]) && trace.lane_of(row).device == analysis.device &&
        call_of(trace, analysis, row) < trace.size())
      streams[trace.lane[row]].push_back(row);
  std::vector<double> depths;
  for (const auto& [lane, rows] : streams)
    for (size_t i = 0, begun = 0; i < rows.size(); ++i) {
      const int64_t issued = trace.start_ns[call_of(trace, analysis, rows[i])];
      while (begun < i && trace.start_ns[rows[begun]] <= issued) ++begun;
      if (trace.kind[rows[i]] == EventKind::kKernel && in_steps(analysis, issued))
        depths.push_back(static_cast<double>(i + 1 - begun));
    }
  return depths;
}

double issuing_share(const Trace& trace, const Analysis& analysis) {
  std::set<uint32_t> launching;
  for (const size_t call : analysis.launched_by)
    if (call < trace.size()) launching.insert(trace.lane[call]);
  std::vector<Interval> issuing, windows(analysis.steps.windows);
  ByName waits(trace, [](std::string_view name) { return holds(name, "synchronize"); });
  for (size_t row = 0; row < trace.size(); ++row) {
    const bool issues = trace.kind[row] == EventKind::kOperator ||
                        (trace.kind[row] == EventKind::kRuntime && !waits(row));
    if (issues && launching.contains(trace.lane[row]))
      issuing.push_back({trace.start_ns[row], trace.end_ns(row)});
  }
  const Intervals steps = union_of(std::move(windows));
  const int64_t whole = total_length(steps);
  if (whole == 0) return 0;
  return static_cast<double>(total_length(intersection_of(steps, union_of(std::move(issuing))))) /
         static_cast<double>(whole);
}

}  // namespace

LaunchBound launch_bound(const Trace& trace, const Analysis& analysis) {
  LaunchBound bound;
  const auto steps = static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
  std::vector<Interval> overhead;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] == EventKind::kOverhead)
      overhead.push_back({trace.start_ns[row], trace.end_ns(row)});
    bound.kernels +=
        (trace.kind[row] == EventKind::kKernel && in_steps(analysis, trace.start_ns[row])) / steps;
  }
  for (const Gap& gap : analysis.gaps) {
    const int64_t cost =
        gap.by_cause_ns[static_cast<size_t>(HostCause::kOperators)] + gap.launch_ns;
    if (cost <= 0) continue;
    bound.cost_ms += static_cast<double>(cost) / 1e6 / steps;
    if (2 * cost >= gap.at.length()) bound.at.push_back(gap.at);
  }
  bound.at = union_of(std::move(bound.at));
  // The recorder's own time is not there without it.
  const Intervals perturbed = intersection_of(bound.at, union_of(std::move(overhead)));
  bound.cost_ms -= static_cast<double>(total_length(perturbed)) / 1e6 / steps;
  bound.cost_ms = std::max(0.0, bound.cost_ms);
  bound.share = share_of(bound.cost_ms, analysis);
  bound.queue_depth = middle_of(depths_of(trace, analysis));
  bound.issuing_share = issuing_share(trace, analysis);
  return bound;
}

double underfilled_ms(const Trace& trace, const Analysis& analysis) {
  const auto device = std::find_if(trace.devices.begin(),
                                   trace.devices.end(),
                                   [&](const Device& d) { return d.number == analysis.device; });
  if (device == trace.devices.end() || device->multiprocessors == 0) return 0;
  double sum = 0;
  ByName communicates(trace, is_communication);
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kKernel || trace.detail[row] == Trace::kNone ||
        trace.duration_ns[row] < 10'000 || communicates(row) ||
        trace.lane_of(row).device != analysis.device || !in_steps(analysis, trace.start_ns[row]))
      continue;
    const int64_t blocks = trace.launches[trace.detail[row]].blocks();
    if (blocks > 0 && blocks < device->multiprocessors)
      sum += static_cast<double>(trace.duration_ns[row]) / 1e6;
  }
  return sum / static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
}

}  // namespace ridge::doctor
