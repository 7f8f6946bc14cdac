// R18: the micro-batch is too small to keep the device busy, or on the CPU to be worth the calls.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/launch_bound.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/rules/small_operators.h"

namespace ridge::doctor {
namespace {

constexpr double kUnderfilled = 0.05;  // Least share of the device's busy time.
constexpr Ladder kOnCpu{.info = 0.35, .warning = 0.35, .high = 0.60};

std::string samples_text(int64_t count) {
  return fmt::format("{} {}", count, count == 1 ? "sample" : "samples");
}

std::string reason_against(const SmallOperators& small) {
  if (small.rows == 0) return "how many samples operators get at once is not known";
  if (small.rows > SmallOperators::kFewRows)
    return fmt::format("operators get {} at once", samples_text(small.rows));
  return fmt::format("operators get {} at once, and {:.0f} % of a step would not grow with them",
                     samples_text(small.rows),
                     100 * small.fixed_share);
}

// More samples in a batch cost no more calls, no more updates and no more reading of weights.
void judge_batch(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const SmallOperators small = small_operators(trace, analysis);
  if (trace.recorder == "ridge" || !small.is_small_batch()) {
    output.not_fired.push_back({"R18", reason_against(small)});
    return;
  }
  Finding finding{
      .rule = "R18",
      .title = fmt::format("the batch is too small: {} at once", samples_text(small.rows))};
  finding.severity = severity_of(small.fixed_share, kOnCpu);
  finding.confidence = 0.8;
  // Twice the batch gives half of it back, a very large one all.
  charge(finding, analysis, small.fixed_share * analysis.breakdown.wall, 0.5);
  finding.at = small.fixed_at;
  finding.evidence.push_back(
      {.text =
           fmt::format("{:.0f} % of a step would be the same for more samples: {:.0f} operators of "
                       "{:.1f} us in the median with {:.1f} us between them, the update of the "
                       "weights, and reading them",
                       100 * small.fixed_share,
                       small.calls,
                       small.median_us,
                       small.between_us)});
  finding.evidence.push_back({.text =
                                  "the gain is that of a sample: from twice the batch up to a very "
                                  "large one, as far as memory allows"});
  const bool accumulates = small.passes > 1;
  if (accumulates)
    finding.evidence.push_back(
        {.text = fmt::format("gradients are accumulated over {:.0f} backward passes a step",
                             small.passes)});
  finding.fix =
      accumulates
          ? "take micro-batches k times as large and accumulate over 1/k as many: the batch of an "
            "update stays, and the run is the same"
          : "take a larger batch, which is another training run: the learning rate has to be "
            "looked "
            "at again, so only with your consent (where gradients are accumulated, micro-batches k "
            "times as large with 1/k of the accumulation leave the run as it is)";
  finding.semantic_class = accumulates ? SemanticClass::kReassociation : SemanticClass::kTrajectory;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace

void r18_small_micro_batch(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  if (analysis.is_cpu_only) return judge_batch(trace, analysis, output);
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
  // The trace does not show how much memory is free: this is a remark, no verdict.
  finding.severity = Severity::kInfo;
  finding.confidence = 0.5;
  // Two steps made into one save the waiting of one, and half of the kernels that fill it badly.
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
  const Foresight foresight = foresee(analysis);
  if (foresight.refusal.empty()) {
    // Twice the samples: at worst every kernel takes twice as long, and the host what it took.
    const auto& [graph, step] = *foresight.replay;
    WhatIf what_if(graph);
    for (const Node& node : graph.nodes)
      if (node.kind == Node::Kind::kDevice) what_if.set_duration(node.row, 2 * node.duration_ns);
    finding.predicted = gain_between(step, what_if.step_ms() / 2, finding.ceiling);
    finding.predicted.high = std::max(finding.predicted.high, 1.0001);
  } else {
    finding.evidence.push_back(
        {.text = fmt::format("the gain is bounded, not predicted: {}", foresight.refusal)});
  }
  finding.fix =
      "if memory allows, take twice the micro-batch and half the accumulation steps: the global "
      "batch stays as it is";
  finding.semantic_class = SemanticClass::kReassociation;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
