// The lines of a report about a third-party program.
#pragma once

#include "ridge/tune/pytorch/program_meter.h"

namespace ridge {

/// The texts of a report about the program of this command.
void describe_program(const attach::CommandTemplate& command, OptimizeSummary& summary);

/// Reports a step of the program as it is.
void report_baseline(const LoopView& loop, const ProgramCosts& costs);

/// Times both as compare() does, and reports what both take besides: energy, memory, processors;
/// and notes of what a change costs that no step has in it. `is_run_known`: the length of the
/// user's own run, which such costs were held against, is known.
TrialResult prove_programs(ForeignRunner& before,
                           ForeignRunner& after,
                           const TrialOptions& options,
                           bool is_run_known,
                           OptimizeSummary& summary);

}  // namespace ridge
