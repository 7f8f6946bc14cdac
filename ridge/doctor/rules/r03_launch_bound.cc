// R03: the device waits for the next launch, since issuing work takes longer than doing it.
#include <fmt/format.h>

#include "ridge/doctor/event_names.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/launch_bound.h"
#include "ridge/doctor/rules/measures.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.10, .warning = 0.10, .high = 0.20};

// Graphs take the place of operators; what loads data and writes files stays.
Intervals kept_by_graphs(const Trace& trace) {
  const std::vector<HostCause> causes = causes_of(trace);
  std::vector<Interval> kept;
  for (size_t row = 0; row < trace.size(); ++row)
    if (causes[row] == HostCause::kLoader || causes[row] == HostCause::kCheckpoint)
      kept.push_back({trace.start_ns[row], trace.end_ns(row)});
  return union_of(std::move(kept));
}

}  // namespace

void r03_launch_bound(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const LaunchBound bound = launch_bound(trace, analysis);
  const std::string text = fmt::format(
      "the device waits {:.2f} ms a step while {:.0f} kernels are issued; threads issue {:.0f} % "
      "of "
      "the time, and at a launch {:.0f} are in the queue",
      bound.cost_ms,
      bound.kernels,
      100 * bound.issuing_share,
      bound.queue_depth);
  if (!bound.is_so()) {
    output.not_fired.push_back({"R03", text});
    return;
  }
  Finding finding{.rule = "R03", .title = "launch bound: the host is slower than the device"};
  finding.severity = severity_of(bound.share, kLadder);
  charge(finding, analysis, bound.cost_ms);
  finding.at = bound.at;
  finding.evidence.push_back({.text = text});
  const Foresight foresight = foresee(trace, analysis);
  predict(finding, foresight, [&](WhatIf& what_if) {
    const auto& windows = foresight.graph->windows;
    what_if.capture({windows.front().begin, windows.back().end}, kept_by_graphs(trace));
  });
  finding.fix =
      "capture the step as a graph (torch.compile with mode=\"reduce-overhead\", or CUDA graphs), "
      "fuse small operators, or give each launch more to do with a larger micro-batch";
  finding.semantic_class = 1;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
