// R03: issuing work takes longer than doing it: the device waits for the next launch, or on the CPU
// calling operators takes longer than what they do.
#include <fmt/format.h>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/launch_bound.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/rules/small_operators.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.10, .warning = 0.10, .high = 0.20};
// On the CPU no device waits, and some overhead there always is.
constexpr Ladder kOnCpu{.info = 0.35, .warning = 0.35, .high = 0.60};
constexpr double kSureOnCpu = 0.4;  // of it goes, whichever way is taken

// Graphs take the place of operators; what loads data and writes files stays.
Intervals kept_by_graphs(const Trace& trace) {
  const std::vector<HostCause> causes = causes_of(trace);
  std::vector<Interval> kept;
  for (size_t row = 0; row < trace.size(); ++row)
    if (causes[row] == HostCause::kLoader || causes[row] == HostCause::kCheckpoint)
      kept.push_back({trace.start_ns[row], trace.end_ns(row)});
  return union_of(std::move(kept));
}

std::string calls_text(const SmallOperators& small) {
  return fmt::format(
      "{:.0f} operators a step, {:.1f} us each in the median and {:.1f} us between them: calling "
      "them "
      "takes {:.0f} % of a step",
      small.calls,
      small.median_us,
      small.between_us,
      100 * small.share);
}

std::string reason_against(const SmallOperators& small) {
  if (small.calls == 0) return "no operators were recorded";
  return calls_text(small) +
         (small.is_small_batch() ? ", since the batch is small (R18)" : ", the rest is their work");
}

void judge_calls(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  if (trace.recorder == "ridge") {
    output.not_fired.push_back({"R03", "a plan's nodes are not called one by one by a program"});
    return;
  }
  const SmallOperators small = small_operators(trace, analysis);
  if (!small.is_overhead()) {
    output.not_fired.push_back({"R03", reason_against(small)});
    return;
  }
  Finding finding{.rule = "R03",
                  .title = "overhead bound: operators do less than it takes to call them"};
  if (small.is_loop()) finding.title = "overhead bound: a loop calls small operators one by one";
  finding.severity = severity_of(small.share, kOnCpu);
  finding.confidence = small.is_loop() ? 0.9 : 0.7;
  charge(finding, analysis, small.share * analysis.breakdown.wall, kSureOnCpu);
  finding.at = small.at;
  finding.evidence.push_back({.text = calls_text(small)});
  if (small.is_loop())
    finding.evidence.push_back(
        {.text = fmt::format("'{}' is called {:.0f} times a step; {:.0f} % of "
                             "the calls have {} and more like them",
                             small.alike,
                             small.most_alike,
                             100 * small.looped,
                             SmallOperators::kManyAlike)});
  if (small.place.share > 0)
    finding.evidence.push_back(
        {.text = fmt::format("{:.0f} % of the calls outside of the backward pass and the update "
                             "come from one function",
                             100 * small.place.share),
         .place = small.place.name});
  finding.fix =
      small.is_loop()
          ? "do all turns of the loop with one operator over a larger tensor, take a module that "
            "has "
            "the loop inside (nn.LSTM, nn.GRU, scaled_dot_product_attention), or let torch.compile "
            "fuse what a turn does"
          : "let torch.compile fuse small operators, or give each more to do: larger batches and "
            "layers, fewer and wider operations";
  finding.semantic_class = SemanticClass::kReassociation;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace

void r03_launch_bound(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  if (analysis.is_cpu_only) return judge_calls(trace, analysis, output);
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
  const Foresight foresight = foresee(analysis);
  predict(finding, foresight, [&](WhatIf& what_if) {
    const auto& windows = foresight.replay->graph.windows;
    what_if.capture({windows.front().begin, windows.back().end}, kept_by_graphs(trace));
  });
  finding.fix =
      "capture the step as a graph (torch.compile with mode=\"reduce-overhead\", or CUDA graphs), "
      "fuse small operators, or give each launch more to do with a larger micro-batch";
  finding.semantic_class = SemanticClass::kReassociation;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
