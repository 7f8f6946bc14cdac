// `ridge optimize -- CMD...` and `ridge ledger replay FILE -- CMD...`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/cli/verbs.h"
#include "ridge/tune/pytorch/program_target.h"

namespace ridge {

/// How a command may be run again and again.
struct RerunOptions {
  bool sandbox = false, rerun = false;
};

struct OptimizeProgramOptions {
  RerunOptions rerun;
  std::string out{};  ///< Empty: a folder of the user's state, outside of the program's.
  std::optional<double> budget{};  ///< Seconds; kProgramBudget where it is not given.
  std::optional<double> planned;
  std::optional<double> confirm{};  ///< Seconds of ForeignOptimizeRequest::confirm_seconds.
  std::vector<std::string> only{};  ///< Techniques that are tried alone; empty: all.
  uint64_t seed = 0;
  double price_per_hour = 0;
  bool allow_trajectory = false, json = false, all = false, dry_run = false;
};

/// Seconds; starts of a program cost some each.
inline constexpr double kProgramBudget = 300;

/// UserError where nothing says how it may be run again.
ForeignTarget make_target(const ForeignCommand& command, const RerunOptions& options);

int run_optimize_program(const OptimizeProgramOptions& options, const ForeignCommand& command);

}  // namespace ridge
