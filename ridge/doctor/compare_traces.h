// Two traces of one program, before and after a change.
#pragma once

#include <string>
#include <vector>

#include "ridge/doctor/examination.h"

namespace ridge::doctor {

inline constexpr double kDefaultGate = 3;  // percent

struct ComparedRow {
  std::string name;
  double before_ms = 0, after_ms = 0;  ///< A step, in the mean.
};

struct Comparison {
  std::string before, after;                                ///< The files.
  double before_ms = 0, after_ms = 0;                       ///< Median steps.
  std::vector<double> before_steps_ms{}, after_steps_ms{};  ///< The steady ones, in their order.
  double speedup = 1;                                       ///< before / after.
  double low = 1, high = 1;   ///< Bounds of the speedup, from 95 % intervals of both medians.
  bool has_interval = false;  ///< False: a trace has fewer than 6 steps.
  double gate_percent = kDefaultGate;
  bool is_regression = false;         ///< Slower by more than the gate, and surely slower.
  std::vector<ComparedRow> parts;     ///< Rows of parts_of_step().
  std::vector<ComparedRow> names;     ///< Kernels or operators that changed most.
  std::vector<std::string> gone;      ///< Findings of `before` alone: "R01 input starved".
  std::vector<std::string> appeared;  ///< Findings of `after` alone.
};

/// UserError where one of them has no steady step.
Comparison compare_traces(const Examination& before, const Examination& after, double gate_percent);
std::string comparison_verdict(const Comparison& comparison);
std::string comparison_text(const Comparison& comparison);

}  // namespace ridge::doctor
