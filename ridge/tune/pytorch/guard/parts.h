// Between the files of the guard for third-party programs.
#pragma once

#include <cmath>

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

/// Runs with a harmless change that show how far one of the same size moves a program, and how many
/// times as far a candidate may move it.
struct ControlRuns {
  ForeignRuns runs;     ///< With the seed of ForeignBaseline::seeds[0].
  double factor = 0;    ///< Allowed distance, in those of the controls.
  double growth = 1;    ///< Allowed beyond that, from step to step.
  double rounding = 0;  ///< Share of a parameter that its last place is.
  /// Shares that are always allowed: of one tensor's update, and of all updates in the median.
  double least_move = 0, least_bias = 0;
  bool is_coarse = false;

  double factor_in(size_t step) const {
    return factor * std::pow(growth, static_cast<double>(step));
  }
};
/// For class 1 controls in the rounding of f32, unless the program is coarser; for class 2 in that
/// of bf16.
ControlRuns controls_for(const ForeignBaseline& baseline, SemanticClass semantic_class);

/// A part of what the first steps show.
struct Shown {
  bool passes = true;
  std::string text{};
  bool is_certain = false;  ///< It does not pass, and no rounding can have made that.
};
/// Updates and gradients of each tensor.
Shown compare_updates(const ForeignBaseline& baseline,
                      const ForeignRuns& candidates,
                      const ControlRuns& controls);
/// Batches by their hashes, then updates, then losses.
Shown compare_first_steps(const ForeignBaseline& baseline,
                          const ForeignRuns& candidates,
                          const ControlRuns& controls,
                          double loss_spread);

/// For classes above 0, outputs for 1 and 2; the runs are whole enough to be compared.
GuardOutcome judge_losses(const ForeignBaseline& baseline,
                          const ForeignRuns& candidates,
                          SemanticClass semantic_class);
GuardOutcome judge_outputs(const ForeignBaseline& baseline,
                           const ForeignRuns& candidates,
                           SemanticClass semantic_class);

}  // namespace ridge
