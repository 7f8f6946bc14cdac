// `ridge doctor -- CMD...`: runs a program of the user's as it is, and says what holds it back.
// The program keeps its stdout, its exit code, its files and its results; the report goes to stderr
// or into a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/cli/doctor_report.h"

namespace CLI {
class App;
}

namespace ridge {

struct LiveOptions {
  std::vector<std::string> command{};
  std::string output{};  ///< File of the report; stderr where it is empty: stdout is the program's.
  std::string trace{};   ///< Keeps what was recorded in this file.
  std::optional<int> steps{};  ///< Steps to record; nothing: 8.
  double after = 30;           ///< Seconds from the first step at which the report is due.
  bool stop = false;           ///< End the program (SIGINT) when all is known.
  /// Seconds for which a program that does not end is asked again.
  double stop_limit = 120;
};
void add_live_options(CLI::App& verb, LiveOptions& options);

/// Runs the command; returns its exit code, whatever was found, or kFindings where it does not end
/// though it was asked to, and is left running.
int run_live(const LiveOptions& options, const ReportForm& form);

}  // namespace ridge
