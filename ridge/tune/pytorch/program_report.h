// The lines of a report about a third-party program.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ridge/tune/pytorch/program_meter.h"
#include "ridge/tune/pytorch/technique.h"

namespace ridge {

/// The texts of a report about the program of this command.
void describe_program(const attach::CommandTemplate& command, OptimizeSummary& summary);

/// Reports a step of the program as it is.
void report_baseline(const LoopView& loop, const ProgramCosts& costs);

/// A line each of what larger batches and fewer updates would bring that the user has not allowed:
/// as `timed`, by the index of the proposal, or at most. None where nothing of it is proposed.
std::vector<std::string> texts_of_leave(std::span<const ForeignProposal> proposals,
                                        const std::map<size_t, SpeedRange>& timed,
                                        const PartShares& parts);

/// Times both as compare() does, and reports what both take besides: energy, memory, processors;
/// and notes of what a change costs that no step has in it. `is_run_known`: the length of the
/// user's own run, which such costs were held against, is known.
TrialResult prove_programs(ForeignRunner& before,
                           ForeignRunner& after,
                           const TrialOptions& options,
                           bool is_run_known,
                           OptimizeSummary& summary);

}  // namespace ridge
