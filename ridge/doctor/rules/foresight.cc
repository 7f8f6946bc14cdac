#include "ridge/doctor/rules/foresight.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge::doctor {

Foresight foresee(const Analysis& analysis) {
  const Replay* const replay = analysis.replay.get();
  if (replay == nullptr)
    return {nullptr, "the trace has no steps and calls that could be replayed"};
  if (replay->step.error() <= kMostReplayError) return {replay, ""};
  return {replay,
          fmt::format("a replay of the trace as it is misses the step by {:.0f} %",
                      100 * replay->step.error())};
}

void predict(Finding& finding,
             const Foresight& foresight,
             const std::function<void(WhatIf&)>& change) {
  if (!foresight.refusal.empty()) {
    finding.evidence.push_back(
        {.text = fmt::format("the gain is bounded, not predicted: {}", foresight.refusal)});
    return;
  }
  const auto& [graph, step] = *foresight.replay;
  WhatIf what_if(graph);
  change(what_if);
  const double after = what_if.step_ms();
  finding.predicted = gain_between(step, after, finding.ceiling);
  // A gain of nothing is a prediction too, and not to be taken for one that was not made.
  finding.predicted.high = std::max(finding.predicted.high, 1.0001);
  finding.evidence.push_back(
      {.text = fmt::format("replayed with the fix, a step takes {:.2f} ms instead of {:.2f}",
                           after,
                           step.replayed_ms)});
}

}  // namespace ridge::doctor
