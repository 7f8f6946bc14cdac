#include "ridge/doctor/findings/measures.h"

#include <algorithm>

#include "ridge/base/stats.h"

namespace ridge::doctor {

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kHigh:
      return "high";
  }
  return "info";
}

Severity severity_of(double share, const Ladder& ladder) {
  if (share >= ladder.high) return Severity::kHigh;
  return share >= ladder.warning ? Severity::kWarning : Severity::kInfo;
}

double share_of(double cost_ms, const Analysis& analysis) {
  const double wall = analysis.breakdown.wall;
  return wall > 0 ? std::clamp(cost_ms / wall, 0.0, 1.0) : 0;
}

double speedup_without(double recovered_ms, double step_ms) {
  if (!(step_ms > 0) || !(recovered_ms > 0)) return 1;
  return step_ms / std::max(step_ms - recovered_ms, step_ms / 100);
}

void charge(Finding& finding, const Analysis& analysis, double cost_ms, double least) {
  const double wall = analysis.breakdown.wall;
  finding.cost_ms = cost_ms;
  finding.share = share_of(cost_ms, analysis);
  finding.ceiling = speedup_without(cost_ms, wall);
  finding.predicted = {speedup_without(least * cost_ms, wall), finding.ceiling};
}

std::vector<double> ms_in_steps(const Intervals& set, const Steps& steps) {
  std::vector<double> times;
  auto from = set.begin();
  for (const Interval& step : steps.windows) {
    while (from != set.end() && from->end <= step.begin) ++from;
    int64_t within = 0;
    for (auto each = from; each != set.end() && each->begin < step.end; ++each)
      within += Interval{std::max(each->begin, step.begin), std::min(each->end, step.end)}.length();
    times.push_back(static_cast<double>(within) / 1e6);
  }
  return times;
}

double middle_of(const std::vector<double>& values) { return values.empty() ? 0 : median(values); }

}  // namespace ridge::doctor
