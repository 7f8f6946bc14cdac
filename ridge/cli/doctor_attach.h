// `ridge doctor --pid N`: the doctor's report on a program that runs already.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "ridge/cli/doctor_report.h"

namespace ridge {

struct AttachOptions {
  pid_t pid = 0;
  double seconds = 5;   ///< How long it records, 0.1 to 600.
  int64_t steps = 0;    ///< Above 0: so many steps, where the program counts them, else seconds.
  std::string trace{};  ///< Keeps the trace at this path.
};

/// Asks the process for a trace and reports on it as `ridge doctor TRACE` does. Returns the exit
/// code: kFine, kFindings, or 128 + the signal that stopped the wait. UserError as
/// attach/kineto/kineto_daemon.h says, and where a file cannot be written.
int run_attach(const AttachOptions& options, const ReportForm& form);

}  // namespace ridge
