// `ridge doctor TRACE...` and `ridge doctor -- CMD...`: where each step's time goes, and what to do
// about it.
#include <CLI/CLI.hpp>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/doctor_attach.h"
#include "ridge/cli/doctor_live.h"
#include "ridge/cli/doctor_report.h"
#include "ridge/cli/verbs.h"
#include "ridge/doctor/compare_traces.h"
#include "ridge/doctor/examination.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/report/compare_html.h"
#include "ridge/doctor/report/json.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

struct DoctorOptions {
  std::vector<std::string> traces;
  std::vector<std::string> compared;
  ReportForm form;
  LiveOptions live;
  AttachOptions attach;
  double gate = doctor::kDefaultGate;
};

doctor::Trace read(const std::string& path) {
  doctor::Trace trace = doctor::read_trace(path);
  print_warnings(trace, path);
  return trace;
}

int run_examination(const DoctorOptions& options) {
  std::vector<doctor::Trace> traces;
  for (const std::string& path : options.traces) traces.push_back(read(path));
  return print_report(doctor::examine(std::move(traces)), options.form);
}

int run_comparison(const DoctorOptions& options) {
  const doctor::Examination before = doctor::examine(read(options.compared[0]));
  const doctor::Examination after = doctor::examine(read(options.compared[1]));
  const doctor::Comparison comparison = doctor::compare_traces(before, after, options.gate);
  if (!options.form.html.empty())
    write_file_atomically(options.form.html, doctor::comparison_html(comparison, before, after));
  write_stdout(options.form.json ? doctor::comparison_json(comparison)
                                 : doctor::comparison_text(comparison));
  return comparison.is_regression ? kFindings : kFine;
}

// An option that would change nothing is refused: a report that is not where it was asked to be is
// missed only later.
void check_forms(const CLI::App& verb, const DoctorOptions& options) {
  const bool has_command = !options.live.command.empty(), has_pid = options.attach.pid != 0;
  const std::string before = has_pid                     ? "--pid"
                             : !options.compared.empty() ? "--compare"
                             : !options.traces.empty()   ? options.traces[0]
                                                         : "";
  check(!has_command || before.empty(),
        "'{}' stands before '--': a trace, a process or a command, one of them",
        before);
  for (const char* name : {"--output", "--after", "--stop", "--stop-limit"})
    check(has_command || verb.count(name) == 0,
          "{0} is for a command; put one behind '--': ridge doctor {0} ... -- python train.py",
          name);
  for (const char* name : {"--trace", "--steps"})
    check(has_command || has_pid || verb.count(name) == 0,
          "{} is for a program that runs; name one by --pid, or put its command behind '--'",
          name);
}

int run_doctor(const CLI::App& verb, const DoctorOptions& options) {
  check_forms(verb, options);
  if (!options.compared.empty()) return run_comparison(options);
  if (!options.live.command.empty()) return run_live(options.live, options.form);
  if (options.attach.pid != 0) {
    AttachOptions attach = options.attach;
    attach.trace = options.live.trace;
    attach.steps = options.live.steps.value_or(0);
    return run_attach(attach, options.form);
  }
  check(!options.traces.empty(),
        "nothing to look at was given; name a trace or a command: ridge doctor TRACE, or ridge "
        "doctor -- python train.py");
  return run_examination(options);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<DoctorOptions>();
  if (command) options->live.command = *command;
  CLI::App* verb = app.add_subcommand(
      "doctor", "Say where the steps of a program lose time, and how to get it back");
  verb->footer(
      "ridge doctor [OPTIONS] TRACE...\n"
      "ridge doctor [OPTIONS] --compare BEFORE AFTER\n"
      "ridge doctor [OPTIONS] -- COMMAND...    runs it as it is\n\n"
      "The report of traces and of --pid goes to stdout, and the exit code is 1 where something is "
      "worth fixing.\n"
      "With a command, stdout and the exit code are the command's own: the report, JSON too, goes "
      "to "
      "stderr behind\nwhat the command writes there, or with --output into a file of its own.");
  CLI::Option* traces = verb->add_option(
      "traces",
      options->traces,
      "Traces as Kineto, PyTorch or Ridge write them (JSON, also gzip), or nsys exports in SQLite; "
      "several: the ranks of one run");
  CLI::Option* compared = verb->add_option(
      "--compare", options->compared, "Two traces of one program, before and after");
  compared->expected(2)->type_name("BEFORE AFTER")->excludes(traces);
  verb->add_option("--html", options->form.html, "Also write the report as one page to this file")
      ->type_name("FILE");
  verb->add_option("--gate",
                   options->gate,
                   "Percent by which AFTER may be slower before the exit code is 1 (3)")
      ->check(CLI::Range(0.0, 1000.0))
      ->needs(compared);
  CLI::Option* json = verb->add_flag("--json",
                                     options->form.json,
                                     "One JSON object (ridge.doctor/1 or ridge.doctor.compare/1) "
                                     "in place of the text");
  verb->add_flag("--all",
                 options->form.shows_all,
                 "List all findings, also those that are expected to gain nothing")
      ->excludes(json)
      ->excludes(compared);
  verb->add_option("--pid", options->attach.pid, "A PyTorch program that runs already")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->excludes(traces)
      ->excludes(compared);
  verb->add_option("--seconds", options->attach.seconds, "That a running program records (5)")
      ->check(CLI::Range(0.1, 600.0))
      ->needs("--pid");
  add_live_options(*verb, options->live);
  verb->callback([options, verb, &exit_code] { exit_code = run_doctor(*verb, *options); });
}

}  // namespace ridge
