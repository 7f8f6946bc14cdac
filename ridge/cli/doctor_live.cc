#include "ridge/cli/doctor_live.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include "ridge/attach/process/program.h"
#include "ridge/attach/process/program_stop.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/shell_word.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/live_samples.h"
#include "ridge/cli/common/output.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/report/html.h"
#include "ridge/io/file.h"
#include "ridge/tune/pytorch/prescription.h"

namespace ridge {
namespace {

constexpr int kLookMilliseconds = 250;
// A program that has made no step by then hears of it once.
constexpr double kPatienceSeconds = 90;

void say(std::string_view text) { write_stderr(plain_line(fmt::format("ridge: {}", text)) + "\n"); }

bool is_over(const attach::ProcessFacts& process) {
  return process.profile == "written" || process.profile == "off" ||
         process.profile.starts_with("failed");
}

/// Returns the processes that train: they make steps.
std::vector<attach::ProcessFacts> stepping(std::vector<attach::ProcessFacts> facts) {
  std::erase_if(facts, [](const attach::ProcessFacts& process) { return process.steps == 0; });
  std::ranges::stable_sort(
      facts, {}, [](const attach::ProcessFacts& process) { return process.rank; });
  return facts;
}

/// Reads a recording and names it after the program: the file is gone when the report is read.
doctor::Trace read(const std::string& path, const std::string& program) {
  doctor::Trace trace;
  trace.source = program;
  if (path.empty()) return trace;
  try {
    trace = doctor::read_trace(path);
    trace.source = program;
    return trace;
  } catch (const UserError& error) {
    say(fmt::format("a recording cannot be read: {}", error.what()));
    return trace;
  }
}

// An early report gets less of a warm-up.
attach::ShimOptions shim_options(const LiveOptions& options) {
  attach::ShimOptions shim;
  shim.profiled_steps = options.steps.value_or(shim.profiled_steps);
  shim.watches_batches = true;
  shim.warm_seconds = std::min(shim.warm_seconds, options.after / 6);
  return shim;
}

/// Tries and proves a cure that can be set from outside; a second diagnosis shows any other.
std::string next_command(const doctor::Finding& finding, const std::vector<std::string>& command) {
  const std::span<const std::string_view> cures = cures_of(finding.rule, finding.fix);
  std::string text =
      cures.empty() ? "ridge doctor --"
                    : fmt::format("ridge optimize --sandbox --only {} --", fmt::join(cures, ","));
  for (const std::string& word : command) text += " " + shell_word(word);
  return text;
}

class LiveDoctor {
 public:
  LiveDoctor(const LiveOptions& options, const ReportForm& form)
      : options_(options),
        form_(form),
        folder_(shim_options(options)),
        program_({.command = options.command,
                  .environment = folder_.environment(),
                  .folders = {folder_.path()}}),
        signals_(std::in_place, program_),
        samples_(program_.pid()),
        started_ns_(now_ns()) {}

  int run() {
    for (;;) {
      const std::optional<attach::ProgramEnd> end = program_.wait(kLookMilliseconds);
      // Nobody else is left whom a signal could be for: it ends a report that takes too long.
      if (end) signals_.reset();
      if (!reported_)
        watch(end.has_value());
      else if (!end && stop_ && !stop_->look(now_ns(), most_steps()))
        return leave();
      if (!end) continue;
      if (!end->trouble.empty()) say(end->trouble);
      if (end->signal != 0)
        say(fmt::format("the program was ended by signal {} ({}) after {}",
                        end->signal,
                        strsignal(end->signal),
                        duration_text(end->seconds)));
      return end->exit_code;
    }
  }

 private:
  // Whatever fails in watching, the program goes on and ends as it does.
  void watch(bool has_ended) {
    try {
      look(has_ended);
    } catch (const std::exception& error) {
      reported_ = true;
      say(fmt::format("there is no report: {}", error.what()));
    }
    if (reported_ && !has_ended && options_.stop)
      stop_.emplace(program_, now_ns(), options_.stop_limit);
  }

  int64_t most_steps() const {
    int64_t most = 0;
    for (const attach::ProcessFacts& process : folder_.facts())
      most = std::max(most, process.steps);
    return most;
  }

  // The program may have work that it would lose, and somebody can look at it.
  int leave() {
    say(stop_->text());
    signals_.reset();
    program_.leave();
    return kFindings;
  }

  void look(bool has_ended) {
    std::vector<attach::ProcessFacts> all = folder_.facts();
    note_killed(all);
    if (!has_ended) samples_.look(all);
    const std::vector<attach::ProcessFacts> facts = stepping(all);
    const double seconds = static_cast<double>(now_ns() - started_ns_) / 1e9;
    if (facts.empty() && !has_ended) {
      if (seconds > kPatienceSeconds && !warned_) {
        say(fmt::format("no step seen in {}: {}", duration_text(seconds), why_no_step(all)));
        warned_ = true;
      }
      return;
    }
    if (!facts.empty() && first_step_ns_ == 0) first_step_ns_ = now_ns();
    const bool is_due = first_step_ns_ != 0 &&
                        static_cast<double>(now_ns() - first_step_ns_) / 1e9 >= options_.after &&
                        std::ranges::all_of(facts, is_over);
    if (!has_ended && !is_due) return;
    reported_ = true;
    // The program goes on beside it.
    [[maybe_unused]] const int niceness = has_ended ? 0 : ::nice(10);
    report(all, facts);
  }

  // One that was killed cannot say that its recording is over, and nothing waits for it.
  void note_killed(std::vector<attach::ProcessFacts>& facts) {
    for (attach::ProcessFacts& process : facts) {
      if (is_over(process)) continue;
      // A number that never was one here is of another namespace.
      if (::kill(process.pid, 0) == 0)
        alive_.insert(process.pid);
      else if (errno == ESRCH && alive_.contains(process.pid))
        process.profile = process.trace_path.empty()
                              ? "failed: the process was killed, or left by os._exit()"
                              : "written";
    }
  }

  std::string why_no_step(const std::vector<attach::ProcessFacts>& all) const {
    if (!folder_.was_loaded())
      return "no Python that it ran looks for sitecustomize (it is no Python program, or runs with "
             "-I, -E or -S, or replaces PYTHONPATH)";
    if (all.empty()) return "no process of it imported torch";
    return "torch was imported, but no optimizer made a step and no module was called twice";
  }

  void report(const std::vector<attach::ProcessFacts>& all,
              const std::vector<attach::ProcessFacts>& facts) {
    for (const attach::ProcessFacts& process : all)
      for (const std::string& note : process.notes)
        say(fmt::format("process {}: {}", process.pid, note));
    for (const attach::ProcessFacts& process : facts)
      if (process.profile.starts_with("failed"))
        say(fmt::format("process {}: the recording {}", process.pid, process.profile));
    if (facts.empty()) {
      say(fmt::format("no step seen: {}", why_no_step(all)));
      for (const std::string& line : samples_.lines()) say(line);
      return;
    }
    const doctor::Examination examination = examine(facts);
    std::string text = report_text(examination, form_);
    if (!form_.json)
      for (const std::string& line : samples_.lines()) text += plain_line(line) + "\n";
    const std::string& file = options_.output;
    if (!form_.html.empty())
      could([&] { write_file_atomically(form_.html, doctor::doctor_html(examination)); });
    if (file.empty() || !could([&] { write_file_atomically(file, text); })) write_stderr(text);
  }

  // Reports a failure, such as a full disk, and lets the rest of the report go on.
  template <typename Write>
  static bool could(Write write) {
    try {
      write();
      return true;
    } catch (const std::exception& error) {
      say(error.what());
      return false;
    }
  }

  /// Examines all ranks; returns the one that the others wait for.
  doctor::Examination examine(const std::vector<attach::ProcessFacts>& facts) {
    std::optional<doctor::Examination> slowest;
    std::vector<doctor::RankRow> ranks;
    for (const attach::ProcessFacts& process : facts) {
      could([&] { keep(process, facts.size() > 1); });
      doctor::LiveFacts seen = samples_.facts_with(process);
      if (!process.stacks_path.empty())
        seen.place = doctor::place_of_calls(read(process.stacks_path, process.program));
      doctor::Examination examination =
          doctor::examine_live(read(process.trace_path, process.program),
                               read(process.spans_path, process.program),
                               seen);
      const doctor::Analysis& analysis = examination.analysis;
      ranks.push_back({.file = fmt::format("process {}", process.pid),
                       .rank = static_cast<int32_t>(process.rank),
                       .step_ms = analysis.step_ms_median,
                       .compute_ms = analysis.breakdown.compute,
                       .communication_ms = analysis.breakdown.communication});
      // One at a time: each may hold a trace of a gigabyte.
      if (doctor::slowest_rank(ranks) + 1 == ranks.size()) slowest = std::move(examination);
    }
    if (ranks.size() > 1) slowest->ranks = std::move(ranks);
    for (doctor::Finding& finding : slowest->diagnosis.findings)
      finding.command = next_command(finding, options_.command);
    return *std::move(slowest);
  }

  void keep(const attach::ProcessFacts& process, bool is_one_of_many) const {
    if (options_.trace.empty() || process.trace_path.empty()) return;
    std::filesystem::path to = options_.trace;
    if (is_one_of_many)
      to.replace_filename(
          fmt::format("{}_{}{}", to.stem().string(), process.pid, to.extension().string()));
    keep_trace(process.trace_path, to);
  }

  const LiveOptions& options_;
  const ReportForm& form_;
  attach::ShimFolder folder_;
  attach::Program program_;
  std::optional<attach::ProgramSignals> signals_;  ///< While the program runs.
  std::optional<attach::ProgramStop> stop_;        ///< When the program is to end.
  LiveSamples samples_;
  int64_t started_ns_, first_step_ns_ = 0;
  bool reported_ = false, warned_ = false;
  std::set<pid_t> alive_;  ///< Processes of the program that were seen to run.
};

}  // namespace

void add_live_options(CLI::App& verb, LiveOptions& options) {
  verb.add_option("--output", options.output, "File of a command's report (stderr)")
      ->type_name("FILE");
  verb.add_option("--trace", options.trace, "Keep what was recorded in this file")
      ->type_name("FILE");
  verb.add_option(
          "--steps", options.steps, "Steps that are recorded (8; with --pid instead of seconds)")
      ->check(CLI::Range(1, 1000));
  verb.add_option("--after", options.after, "Seconds from the first step to the report (30)")
      ->check(CLI::Range(0.0, 86400.0));
  CLI::Option* stop =
      verb.add_flag("--stop", options.stop, "End the program (SIGINT) after the report");
  verb.add_option("--stop-limit",
                  options.stop_limit,
                  "Seconds for which --stop asks a program that goes on (120); then it is left "
                  "running, and the exit code is 1")
      ->check(CLI::Range(0.0, 86400.0))
      ->needs(stop);
}

int run_live(const LiveOptions& options, const ReportForm& form) {
  for (const std::string& path : {options.output, options.trace, form.html}) check_place(path);
  try {
    return LiveDoctor(options, form).run();
  } catch (const attach::ProgramError& error) {
    write_stderr(fmt::format("error: {}\n", error.what()));
    return error.exit_code();
  }
}

}  // namespace ridge
