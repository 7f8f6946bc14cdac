// Output that the forms of `ridge doctor` share.
#pragma once

#include <string>

#include "ridge/doctor/examination.h"

namespace ridge {

/// How a report is written.
struct ReportForm {
  std::string html{};  ///< Also as a page, to this file.
  bool json = false;
  bool shows_all = false;  ///< The text has all findings.
};

/// The text or the JSON of a report.
std::string report_text(const doctor::Examination& examination, const ReportForm& form);

/// Writes the reader's warnings about `trace` to stderr; `name` is what the trace is called.
void print_warnings(const doctor::Trace& trace, const std::string& name);

/// Copies a recording to a file of the user's, which then is whole or as it was. UserError where it
/// cannot be written.
void keep_trace(const std::string& recorded, const std::string& kept);

/// The page to its file and the text or JSON to stdout; kFindings where something is worth
/// fixing, else kFine. UserError where it cannot be written.
int print_report(const doctor::Examination& examination, const ReportForm& form);

}  // namespace ridge
