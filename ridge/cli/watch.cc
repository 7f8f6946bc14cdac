// `ridge watch`: a program as it runs, its own or one that runs already.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>

#include "ridge/attach/process/program.h"
#include "ridge/attach/shim.h"
#include "ridge/attach/watch/watch_source.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/verbs.h"
#include "ridge/cli/watch/outputs.h"

namespace ridge {
namespace {

using attach::Program;
using attach::ProgramEnd;
using attach::WatchSource;
using attach::WatchState;

// Takes a state every so often, and says how long there is until the next.
class Ticks {
 public:
  explicit Ticks(const WatchOptions& options)
      : interval_ns_(static_cast<int64_t>((options.interval > 0 ? options.interval : 1) * 1e9)) {}

  bool is_due() const { return now_ns() >= next_ns_; }
  // The second sample comes soon, so that there are rates to show; missed ones are not made up for.
  void done() {
    constexpr int64_t kSoonNs = 200'000'000;
    const int64_t wait = count_++ == 0 ? std::min(interval_ns_, kSoonNs) : interval_ns_;
    next_ns_ = std::max(next_ns_ + wait, now_ns() + wait / 2);
    if (count_ == 1) next_ns_ = now_ns() + wait;
  }
  // The wait is cut into pieces, so that a signal between two checks of its flag is soon noticed.
  int wait_ms() const {
    constexpr int64_t kLongest = 250;
    const int64_t ms = (next_ns_ - now_ns()) / 1'000'000 + 1;
    return static_cast<int>(std::clamp<int64_t>(ms, 0, kLongest));
  }

 private:
  int64_t interval_ns_, next_ns_ = 0;
  int count_ = 0;
};

WatchState first_state(const WatchOptions& options, pid_t root) {
  WatchState state;
  state.price_per_hour = options.price_per_hour;
  state.usable_cpus = attach::usable_cpus({&root, 1});
  return state;
}

void heed_terminal(WatchOutputs& outputs, const WatchState& state) {
  if (WatchSignals::was_stopped()) {
    outputs.stop();
    outputs.redraw(state);
  }
  if (WatchSignals::was_resized()) outputs.redraw(state);
}

int watch_process(const WatchOptions& options) {
  WatchSource source(options.pid);
  WatchState state = first_state(options, options.pid);
  advance(state, source.take());
  check(
      !state.is_over, "there is no process {} here; 'ps' lists those that there are", options.pid);
  WatchOutputs outputs(options);
  const WatchSignals signals(true);
  outputs.start();
  outputs.show(state);
  Ticks ticks(options);
  ticks.done();
  for (bool goes_on = true; goes_on && !state.is_over && WatchSignals::end() == 0;) {
    const char key = outputs.wait_for_key(ticks.wait_ms());
    if (key == 'q' || key == 'Q') break;
    heed_terminal(outputs, state);
    if (!ticks.is_due()) continue;
    advance(state, source.take());
    goes_on = state.is_over || outputs.show(state);
    ticks.done();
  }
  outputs.finish(state);
  const int signal = WatchSignals::end();
  return signal == 0 || signal == SIGINT ? kFine : kSignalBase + signal;
}

// Whatever fails in watching, the program goes on and ends as it does: it is said once.
template <typename Body>
void unless_failed(bool& has_failed, Body body) {
  if (has_failed) return;
  try {
    body();
  } catch (const std::exception& error) {
    has_failed = true;
    write_stderr(
        plain_line(fmt::format("ridge watch: the program goes on unwatched: {}", error.what())) +
        "\n");
  }
}

ProgramEnd watch_until_end(Program& program,
                           const WatchOptions& options,
                           WatchOutputs& outputs,
                           const attach::ShimFolder& shim) {
  WatchSource source(program.pid(), &shim);
  WatchState state = first_state(options, program.pid());
  // The name and number are known even of a program that ends before it is sampled.
  state.program = std::filesystem::path(options.command[0]).filename().string();
  state.pid = program.pid();
  Ticks ticks(options);
  bool has_failed = false;
  std::optional<ProgramEnd> end;
  unless_failed(has_failed, [&] { outputs.start(); });
  while (!end) {
    if (ticks.is_due()) {
      unless_failed(has_failed, [&] {
        advance(state, source.take());
        if (!state.is_over) outputs.show(state);
      });
      ticks.done();
    }
    end = program.wait(ticks.wait_ms());
    unless_failed(has_failed, [&] { heed_terminal(outputs, state); });
  }
  unless_failed(has_failed, [&] {
    advance(state, source.take());
    state.is_over = true;
    state.elapsed = std::max(state.elapsed, end->seconds);
    state.peak_rss_bytes = std::max(state.peak_rss_bytes, end->peak_rss_bytes);
    outputs.finish(state);
  });
  if (!end->trouble.empty())
    write_stderr(plain_line(fmt::format("ridge watch: {}", end->trouble)) + "\n");
  return *end;
}

int watch_command(const WatchOptions& options) try {
  WatchOutputs outputs(options);
  const attach::ShimFolder shim({.profiled_steps = 0});
  Program program(
      {.command = options.command, .environment = shim.environment(), .folders = {shim.path()}});
  const attach::ProgramSignals program_signals(program);
  const WatchSignals signals(false);
  return watch_until_end(program, options, outputs, shim).exit_code;
} catch (const attach::ProgramError& error) {
  write_stderr(fmt::format("error: {}\n", error.what()));
  return error.exit_code();
}

}  // namespace

int run_watch(const WatchOptions& options) {
  if (options.pid == 0 && options.command.empty())
    throw UserError("there is nothing to watch",
                    "name it: ridge watch --pid N, or ridge watch -- CMD...");
  check(options.pid == 0 || options.command.empty(),
        "--pid and a command cannot both be watched; give one of them");
  return options.command.empty() ? watch_process(options) : watch_command(options);
}

void add_watch(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<WatchOptions>();
  CLI::App* verb = app.add_subcommand(
      "watch", "Show steps, processors, devices, memory, power and cost of a program as it runs");
  verb->footer(
      "ridge watch --pid N     a program that runs already: its steps are not seen\n"
      "ridge watch -- CMD...   a program that is started for it");
  verb->add_option("--pid", options->pid, "The process to watch, with all below it")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--interval", options->interval, "Seconds between two samples (1; lines: 10)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0));
  verb->add_option("--price-per-hour", options->price_per_hour, "What the machine costs an hour")
      ->type_name("X")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json",
                 options->json,
                 "One JSON object a sample (ridge.watch/1) instead of the view: on stdout, or on "
                 "stderr with a command");
  verb->add_option("--output", options->output, "Write the JSON to this file, beside the view")
      ->type_name("FILE");
  verb->add_option("--prometheus", options->prometheus, "Serve /metrics at this port")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535));
  verb->add_option("--listen", options->listen, "Serve at this address (127.0.0.1)")
      ->type_name("ADDRESS");
  verb->add_flag("--quiet", options->quiet, "No view");
  verb->callback([options, &exit_code, command] {
    if (command) options->command = *command;
    exit_code = run_watch(*options);
  });
}

}  // namespace ridge
