// The command line: verbs, options, exit codes.
#pragma once

namespace ridge {

/// A signal that stopped a run after saving is 128 + its number: 130 or 143.
enum ExitCode { kFine = 0, kFindings = 1, kUsage = 2, kInternal = 3, kSignalBase = 128 };

/// Runs `ridge ARGS`; returns the exit code. Data goes to stdout, all else to stderr.
int run_command(int argc, char** argv);

}  // namespace ridge
