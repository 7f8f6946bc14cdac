// The lines of a report about a third-party program.
#pragma once

#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial.h"
#include "ridge/tune/pytorch/runner.h"

namespace ridge {

/// The texts of a report about the program of this command.
void describe_program(const attach::CommandTemplate& command, OptimizeSummary& summary);

/// Speed and memory of both, and notes of what a change costs that no step has in it.
/// `is_run_known`: the length of the user's own run, which such costs were held against, is known.
void report_proof(const ForeignRunner& before,
                  const ForeignRunner& after,
                  const TrialResult& trial,
                  bool is_run_known,
                  OptimizeSummary& summary);

}  // namespace ridge
