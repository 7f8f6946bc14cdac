// Between the files of the guard for third-party programs.
#pragma once

#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge {

using ForeignRuns = std::vector<attach::RunRecord>;

inline GuardOutcome guard_passed(std::string text) { return {true, true, {}, {}, text}; }
inline GuardOutcome guard_failed(std::string text) { return {false, true, {}, {}, text}; }
inline GuardOutcome guard_open(const std::string& text) {
  return {false, false, {}, {}, "cannot tell: " + text};
}
/// "0.034 %"
std::string percent(double share);
/// "40 steps x 3 seeds"
std::string extent_of(const ForeignRuns& candidates, std::string_view steps);

/// For classes above 0, outputs for 1 and 2; the runs are whole enough to be compared.
GuardOutcome judge_losses(const ForeignBaseline& baseline,
                          const ForeignRuns& candidates,
                          SemanticClass semantic_class);
GuardOutcome judge_outputs(const ForeignBaseline& baseline,
                           const ForeignRuns& candidates,
                           SemanticClass semantic_class);

}  // namespace ridge
