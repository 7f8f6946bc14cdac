// The command line: verbs, options, exit codes.
#pragma once

namespace ridge {

/// Runs `ridge ARGS`; returns the exit code: 0 fine, 1 findings or a failed check, 2 usage or input
/// error, 3 internal error. Data goes to stdout, all else to stderr.
int run_command(int argc, char** argv);

}  // namespace ridge
