// A run of equal steps, with an analysis that is set by hand: what a rule is given.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

inline int64_t ns(double ms) { return static_cast<int64_t>(ms * 1e6); }

/// Times are milliseconds; steps lie one after the other from 0 on.
class MadeRun {
 public:
  explicit MadeRun(std::vector<double> step_ms) {
    trace_.source = "run.json";
    trace_.names = {""};
    analysis_.steps.source = "ProfilerStep";
    double at = 0;
    for (double ms : step_ms) {
      analysis_.steps.windows.push_back({ns(at), ns(at + ms)});
      at += ms;
    }
    if (!step_ms.empty()) analysis_.breakdown.wall = at / static_cast<double>(step_ms.size());
    analysis_.device = 0;
  }
  MadeRun(size_t steps, double step_ms) : MadeRun(std::vector<double>(steps, step_ms)) {}

  size_t host(EventKind kind, std::string_view name, double at, double ms, int64_t thread = 1) {
    return add(kind, name, {1, thread, -1, {}}, {ns(at), ns(at) + ns(ms)});
  }
  size_t kernel(std::string_view name, double at, double ms, int32_t device = 0) {
    return add(EventKind::kKernel, name, {0, 7, device, {}}, {ns(at), ns(at) + ns(ms)});
  }
  /// No kernel computes from `at` on, by the fault of `cause`.
  void starve(HostCause cause, double at, double ms) {
    Gap gap;
    gap.at = {ns(at), ns(at + ms)};
    gap.starved_ns = ns(ms);
    gap.cause = cause;
    gap.by_cause_ns[static_cast<size_t>(cause)] = ns(ms);
    analysis_.gaps.push_back(gap);
    const double mean = ms / static_cast<double>(analysis_.steps.windows.size());
    analysis_.breakdown.starved += mean;
    analysis_.breakdown.starved_by[static_cast<size_t>(cause)] += mean;
  }

  Trace& trace() { return trace_; }
  Analysis& analysis() { return analysis_; }

  /// Applies one rule to the run.
  RuleOutput apply(void (*rule)(const Trace&, const Analysis&, RuleOutput&)) {
    Trace sorted = trace_;
    sorted.sort();
    RuleOutput output;
    rule(sorted, analysis_, output);
    return output;
  }

 private:
  // No builder is kept: it would point to the trace that a copy was made of.
  template <typename T>
  static uint32_t number_of(std::vector<T>& table, const T& value) {
    const auto found = std::find(table.begin(), table.end(), value);
    const auto number = static_cast<uint32_t>(found - table.begin());
    if (found == table.end()) table.push_back(value);
    return number;
  }
  size_t add(EventKind kind, std::string_view name, const Lane& lane, Interval at) {
    const uint32_t text = number_of(trace_.names, std::string(name));
    const uint32_t on = number_of(trace_.lanes, lane);
    return TraceBuilder(trace_).add(kind, text, on, at.begin, at.length());
  }

  Trace trace_;
  Analysis analysis_;
};

/// The reason that it has not fired, or what it has found after all.
inline std::string reason(const RuleOutput& output) {
  if (!output.findings.empty()) return "fired: " + output.findings.front().title;
  return output.not_fired.empty() ? "nothing said" : output.not_fired.front().reason;
}

}  // namespace ridge::doctor
