// `ridge doctor TRACE...`: where each step's time goes, and what to do about it.
#include <CLI/CLI.hpp>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/base/markup.h"
#include "ridge/cli/command.h"
#include "ridge/cli/output.h"
#include "ridge/cli/verbs.h"
#include "ridge/doctor/compare_traces.h"
#include "ridge/doctor/doctor_html.h"
#include "ridge/doctor/doctor_json.h"
#include "ridge/doctor/doctor_text.h"
#include "ridge/doctor/examination.h"
#include "ridge/doctor/read_trace.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

struct DoctorOptions {
  std::vector<std::string> traces;
  std::vector<std::string> compared;
  std::string html;
  double gate = doctor::kDefaultGate;
  bool json = false;
};

doctor::Trace read(const std::string& path) {
  doctor::Trace trace = doctor::read_trace(path);
  for (const doctor::Warning& warning : trace.warnings)
    write_stderr(plain_line(fmt::format(
                     "note: {}: {}{}",
                     path,
                     warning.text,
                     warning.count > 1 ? fmt::format(" ({})", warning.count) : std::string())) +
                 "\n");
  return trace;
}

int run_examination(const DoctorOptions& options) {
  std::vector<doctor::Trace> traces;
  for (const std::string& path : options.traces) traces.push_back(read(path));
  const doctor::Examination examination = doctor::examine(std::move(traces));
  if (!options.html.empty()) write_file_atomically(options.html, doctor::doctor_html(examination));
  write_stdout(options.json ? doctor::doctor_json(examination) : doctor::doctor_text(examination));
  return doctor::has_findings(examination.diagnosis) ? kFindings : kFine;
}

int run_comparison(const DoctorOptions& options) {
  const doctor::Examination before = doctor::examine(read(options.compared[0]));
  const doctor::Examination after = doctor::examine(read(options.compared[1]));
  const doctor::Comparison comparison = doctor::compare_traces(before, after, options.gate);
  write_stdout(options.json ? doctor::comparison_json(comparison)
                            : doctor::comparison_text(comparison));
  return comparison.is_regression ? kFindings : kFine;
}

int run_doctor(const DoctorOptions& options) {
  if (!options.compared.empty()) return run_comparison(options);
  check(!options.traces.empty(), "no trace was given; name one: ridge doctor TRACE");
  return run_examination(options);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "Say where the steps of a traced program lose time, and how to get it back");
  CLI::Option* traces = verb->add_option(
      "traces",
      options->traces,
      "Traces as Kineto, PyTorch or Ridge write them (JSON, also gzip), or nsys exports in SQLite; "
      "several: the ranks of one run");
  CLI::Option* compared = verb->add_option(
      "--compare", options->compared, "Two traces of one program, before and after");
  compared->expected(2)->type_name("BEFORE AFTER")->excludes(traces);
  verb->add_option("--html", options->html, "Also write the report as one page to this file")
      ->type_name("FILE")
      ->excludes(compared);
  verb->add_option("--gate",
                   options->gate,
                   "Percent by which AFTER may be slower before the exit code is 1 (3)")
      ->check(CLI::Range(0.0, 1000.0))
      ->needs(compared);
  verb->add_flag(
      "--json", options->json, "One JSON object (ridge.doctor/1 or ridge.doctor.compare/1)");
  verb->callback([options, &exit_code] { exit_code = run_doctor(*options); });
}

}  // namespace ridge
