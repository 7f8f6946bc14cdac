// R18: the micro-batch is too small to keep the device busy.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/launch_bound.h"
#include "ridge/doctor/rules/measures.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr double kUnderfilled = 0.05;  // Of the time that the device is busy.

}  // namespace

void r18_small_micro_batch(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const LaunchBound bound = launch_bound(trace, analysis);
  const double underfilled = underfilled_ms(trace, analysis);
  const double busy = analysis.breakdown.busy;
  const bool is_underfilled = busy > 0 && underfilled >= kUnderfilled * busy;
  if (!bound.is_so() && !is_underfilled) {
    output.not_fired.push_back(
        {"R18", "kernels fill the device, and it does not wait for launches"});
    return;
  }
  Finding finding{.rule = "R18", .title = "the micro-batch may be too small"};
  // How much memory is left the trace does not tell: it is a word, no verdict.
  finding.severity = Severity::kInfo;
  finding.confidence = 0.5;
  // Of two steps made into one, the waiting of one is saved, and half of what filled it badly.
  const double cost =
      (bound.is_so() ? bound.cost_ms : 0) / 2 + (is_underfilled ? underfilled : 0) / 2;
  charge(finding, analysis, cost);
  finding.at = bound.is_so() ? bound.at : Intervals{};
  if (bound.is_so())
    finding.evidence.push_back(
        {.text = fmt::format("the device waits {:.2f} ms a step for launches", bound.cost_ms)});
  if (is_underfilled)
    finding.evidence.push_back(
        {.text = fmt::format("{:.2f} ms a step are kernels with fewer blocks than the device has "
                             "multiprocessors",
                             underfilled)});
  finding.evidence.push_back({.text = "the trace does not tell how much memory is free"});
  const Foresight foresight = foresee(trace, analysis);
  if (foresight.refusal.empty()) {
    // Twice the samples: at worst every kernel takes twice as long, and the host what it took.
    WhatIf what_if(*foresight.graph);
    for (const Node& node : foresight.graph->nodes)
      if (node.kind == Node::Kind::kDevice) what_if.set_duration(node.row, 2 * node.duration_ns);
    finding.predicted = gain_between(foresight.step, what_if.step_ms() / 2, finding.ceiling);
    finding.predicted.high = std::max(finding.predicted.high, 1.0001);
  } else {
    finding.evidence.push_back(
        {.text = fmt::format("the gain is bounded, not predicted: {}", foresight.refusal)});
  }
  finding.fix =
      "if memory allows, take twice the micro-batch and half the accumulation steps: the global "
      "batch stays as it is";
  finding.semantic_class = 1;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
