// R05: the host waits for the device, and the device then waits for the host.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.02, .warning = 0.05, .high = 0.15};
constexpr double kMostStalls = 1;  // A step; one may be the program's own clock.
// Frequent stalls below this share of a step are not reported.
constexpr double kLeastShare = 0.001;
constexpr std::string_view kFix =
    "read losses and metrics some steps late or once in many; clip, scale and test for overflow "
    "on the device; no .item(), .cpu() or synchronize() in the loop";

struct Stalls {
  double cost_ms = 0;  // A step.
  double a_step = 0;
  std::vector<size_t> calls;  // Calls that returned late, each once.
  std::vector<Interval> at;
};

// Calls that wait for the device, or for a copy, by when they returned.
std::vector<size_t> waits_of(const Trace& trace) {
  const std::vector<HostCause> causes = causes_of(trace);
  std::vector<size_t> waits;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kRuntime && causes[row] != HostCause::kOperators &&
        (causes[row] == HostCause::kSync || causes[row] == HostCause::kPageable))
      waits.push_back(row);
  std::sort(waits.begin(), waits.end(), [&](size_t a, size_t b) {
    return std::pair(trace.end_ns(a), a) < std::pair(trace.end_ns(b), b);
  });
  return waits;
}

// A stall is where the device is idle and the host comes late from a wait: how long the call took
// does not matter, since a wait while the device works costs nothing.
Stalls stalls_of(const Trace& trace, const Analysis& analysis) {
  Stalls stalls;
  const std::vector<size_t> waits = waits_of(trace);
  const auto steps = static_cast<double>(analysis.steps.windows.size());
  for (const Gap& gap : analysis.gaps) {
    const int64_t cost = gap.by_cause_ns[static_cast<size_t>(HostCause::kSync)] +
                         gap.by_cause_ns[static_cast<size_t>(HostCause::kPageable)];
    if (cost <= 0) continue;
    stalls.cost_ms += static_cast<double>(cost) / 1e6 / steps;
    stalls.a_step += 1 / steps;
    stalls.at.push_back(gap.at);
    const auto after = std::partition_point(
        waits.begin(), waits.end(), [&](size_t row) { return trace.end_ns(row) <= gap.at.end; });
    if (after != waits.begin() && trace.end_ns(*(after - 1)) >= gap.at.begin)
      stalls.calls.push_back(*(after - 1));
  }
  std::sort(stalls.calls.begin(), stalls.calls.end());
  stalls.calls.erase(std::unique(stalls.calls.begin(), stalls.calls.end()), stalls.calls.end());
  return stalls;
}

Evidence evidence_of(const Trace& trace, const Stalls& stalls) {
  std::map<std::string_view, size_t> by_name;
  for (const size_t row : stalls.calls) ++by_name[trace.name_text(row)];
  Evidence evidence;
  for (const auto& [name, count] : by_name)
    evidence.text +=
        fmt::format("{}{} calls of {}", evidence.text.empty() ? "" : ", ", count, name);
  evidence.text += fmt::format("{}{:.1f} stalls of the device a step, {:.2f} ms of it",
                               by_name.empty() ? "" : "; ",
                               stalls.a_step,
                               stalls.cost_ms);
  for (size_t i = 0; i < std::min<size_t>(5, stalls.calls.size()); ++i)
    evidence.rows.push_back(stalls.calls[i]);
  return evidence;
}

void without_waits(const Trace& trace,
                   const Analysis& analysis,
                   const Stalls& stalls,
                   WhatIf& what_if) {
  std::map<size_t, size_t> copy_of;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kCopy) copy_of[call_of(trace, analysis, row)] = row;
  for (const size_t call : stalls.calls) {
    what_if.drop_wait(call);
    if (const auto copy = copy_of.find(call); copy != copy_of.end())
      what_if.move_to_own_stream(copy->second, true);
  }
}

}  // namespace

void r05_host_sync(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const Stalls stalls = stalls_of(trace, analysis);
  const double share = share_of(stalls.cost_ms, analysis);
  const bool is_often = stalls.a_step > kMostStalls && share >= kLeastShare;
  if (share < kLadder.info && !is_often) {
    output.not_fired.push_back(
        {"R05",
         fmt::format("the device idles {:.1f} % of a step behind waits of the host", 100 * share)});
    return;
  }
  Finding finding{.rule = "R05", .title = "the host waits for the device, and is late then"};
  finding.severity = severity_of(share, kLadder);
  charge(finding, analysis, stalls.cost_ms);
  finding.at = union_of(stalls.at);
  finding.evidence.push_back(evidence_of(trace, stalls));
  predict(finding, foresee(analysis), [&](WhatIf& what_if) {
    without_waits(trace, analysis, stalls, what_if);
  });
  report(output, trace, std::move(finding), {.fix = kFix});
}

}  // namespace ridge::doctor
