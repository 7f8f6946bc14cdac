#include "ridge/cli/doctor_report.h"

#include <fmt/format.h>

#include "ridge/base/html/markup.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/doctor/report/html.h"
#include "ridge/doctor/report/json.h"
#include "ridge/doctor/report/text.h"
#include "ridge/io/file.h"

namespace ridge {

void print_warnings(const doctor::Trace& trace, const std::string& name) {
  for (const doctor::Warning& warning : trace.warnings)
    write_stderr(plain_line(fmt::format(
                     "note: {}: {}{}",
                     name,
                     warning.text,
                     warning.count > 1 ? fmt::format(" ({})", warning.count) : std::string())) +
                 "\n");
}

void keep_trace(const std::string& recorded, const std::string& kept) {
  const MappedFile file(recorded);
  stream_file_atomically(kept, [&](ByteSink sink) { sink(file.bytes()); });
}

std::string report_text(const doctor::Examination& examination, const ReportForm& form) {
  return form.json ? doctor::doctor_json(examination)
                   : doctor::doctor_text(examination, form.shows_all);
}

int print_report(const doctor::Examination& examination, const ReportForm& form) {
  if (!form.html.empty()) write_file_atomically(form.html, doctor::doctor_html(examination));
  write_stdout(report_text(examination, form));
  return doctor::has_findings(examination.diagnosis) ? kFindings : kFine;
}

}  // namespace ridge
