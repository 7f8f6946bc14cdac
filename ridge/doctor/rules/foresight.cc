#include "ridge/doctor/rules/foresight.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge::doctor {

Foresight foresee(const Trace& trace, const Analysis& analysis) {
  Foresight foresight;
  foresight.graph = build_dependencies(trace, analysis);
  if (!foresight.graph) {
    foresight.refusal = "the trace has no steps and calls that could be replayed";
    return foresight;
  }
  foresight.step = replayed_step(*foresight.graph);
  if (foresight.step.error() > kMostReplayError)
    foresight.refusal = fmt::format("a replay of the trace as it is misses the step by {:.0f} %",
                                    100 * foresight.step.error());
  return foresight;
}

void predict(Finding& finding,
             const Foresight& foresight,
             const std::function<void(WhatIf&)>& change) {
  if (!foresight.refusal.empty()) {
    finding.evidence.push_back(
        {.text = fmt::format("the gain is bounded, not predicted: {}", foresight.refusal)});
    return;
  }
  WhatIf what_if(*foresight.graph);
  change(what_if);
  const double after = what_if.step_ms();
  finding.predicted = gain_between(foresight.step, after, finding.ceiling);
  // A gain of nothing is a prediction too, and not to be taken for one that was not made.
  finding.predicted.high = std::max(finding.predicted.high, 1.0001);
  finding.evidence.push_back(
      {.text = fmt::format("replayed with the fix, a step takes {:.2f} ms instead of {:.2f}",
                           after,
                           foresight.step.replayed_ms)});
}

}  // namespace ridge::doctor
