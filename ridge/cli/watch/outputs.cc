#include "ridge/cli/watch/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "ridge/attach/watch/prometheus.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/watch/sections.h"

namespace ridge {
namespace {

using attach::WatchState;

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

// A terminal on which a line can be erased.
bool can_erase(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return is_terminal(descriptor) && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

WatchOutputs::WatchOutputs(const WatchOptions& options) : options_(options) {
  check(options.output.empty() || options.json, "--output takes what --json writes; add --json");
  check(!options.quiet || options.json || options.prometheus >= 0,
        "with --quiet alone nothing would be shown; add --json or --prometheus PORT");
  if (options.prometheus >= 0)
    server_ = std::make_unique<attach::PrometheusServer>(options.listen, options.prometheus);
  if (!options.output.empty()) file_ = std::make_unique<FileWriter>(options.output);
}

void WatchOutputs::start() {
  // JSON on a standard stream takes the place of what is for people: a pipe may well end on the
  // same terminal.
  const bool has_view = !options_.quiet && (!options_.json || file_ != nullptr);
  if (has_view) open_terminal();
  has_lines_ = has_view && terminal_ == nullptr;
  if (server_ == nullptr) return;
  server_->serve();
  if (!options_.quiet && terminal_ == nullptr)
    say(fmt::format("serving http://{}:{}/metrics", options_.listen, server_->port()));
}

// A program that writes to the terminal has it for itself. One whose output goes elsewhere leaves
// it to the view.
void WatchOutputs::open_terminal() {
  if (options_.command.empty()) {
    if (can_show_screen(STDERR_FILENO))
      terminal_ = std::make_unique<WatchTerminal>(STDERR_FILENO, false, true);
    return;
  }
  if (is_terminal(STDOUT_FILENO) || is_terminal(STDERR_FILENO)) return;
  const int descriptor = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return;
  if (can_show_screen(descriptor))
    terminal_ = std::make_unique<WatchTerminal>(descriptor, true, false);
  else
    ::close(descriptor);
}

bool WatchOutputs::show(const WatchState& state) {
  if (server_ != nullptr) server_->publish(attach::prometheus_text(state));
  if (options_.json && state.load) put_json(state);
  if (has_lines_) put_line(state);
  redraw(state);
  return terminal_ != nullptr || has_lines_ || options_.json || server_ != nullptr;
}

void WatchOutputs::redraw(const WatchState& state) {
  if (terminal_ == nullptr) return;
  ScreenStyle style = terminal_->style();
  style.help = !options_.command.empty() ? "Ctrl-C goes to the program"
               : terminal_->takes_keys() ? "q quits, the program goes on"
                                         : "Ctrl-C quits, the program goes on";
  if (server_ != nullptr)
    style.help += fmt::format("   http://{}:{}/metrics", options_.listen, server_->port());
  if (!terminal_->draw(watch_screen(state, style))) terminal_.reset();
}

void WatchOutputs::put_json(const WatchState& state) {
  const std::string text = attach::watch_json(state);
  if (file_ != nullptr)
    file_->write(as_bytes(text));
  else if (options_.command.empty())
    write_stdout(text);
  else
    write_stderr(text);
}

void WatchOutputs::put_line(const WatchState& state) {
  if (!state.load) return;  // the first sample has no rates
  constexpr double kUsual = 10;
  const double seconds = options_.interval > 0 ? options_.interval : kUsual;
  const int64_t now = now_ns();
  // Half an interval early is in time: the clock of the samples is not to the nanosecond.
  if (lined_ns_ != 0 &&
      static_cast<double>(now - lined_ns_) * 1e-9 < seconds - 0.5 * std::min(1.0, seconds))
    return;
  lined_ns_ = now;
  for (const std::string& what : state.last.missing) {
    if (std::find(missing_said_.begin(), missing_said_.end(), what) != missing_said_.end())
      continue;
    missing_said_.push_back(what);
    say("not known: " + what);
  }
  say(watch_line(state));
}

void WatchOutputs::finish(const WatchState& state) {
  if (options_.json && state.load) put_json(state);
  const bool has_view = terminal_ != nullptr || has_lines_;
  terminal_.reset();
  if (has_view) say(watch_summary(state));
  if (file_ != nullptr) file_->finish();
}

char WatchOutputs::wait_for_key(int milliseconds) {
  if (terminal_ != nullptr) return terminal_->wait_for_key(milliseconds);
  ::poll(nullptr, 0, milliseconds);
  return 0;
}

void WatchOutputs::stop() {
  if (terminal_ != nullptr) terminal_->leave();
  ::raise(SIGSTOP);
}

// In one piece, so that it does not mix with a line of the program. What the program has begun on
// this line of a terminal, mostly a bar that it draws again, makes room.
void WatchOutputs::say(std::string_view text) const {
  const std::string line = fmt::format(
      "{}ridge watch: {}\n", can_erase(STDERR_FILENO) ? "\r\x1b[K" : "", plain_line(text));
  write_stderr(line);
}

}  // namespace ridge
