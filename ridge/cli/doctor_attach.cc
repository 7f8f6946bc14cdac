#include "ridge/cli/doctor_attach.h"

#include <fmt/format.h>

#include <csignal>
#include <iterator>

#include "ridge/attach/kineto/kineto_daemon.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/doctor/read/read_trace.h"

namespace ridge {
namespace {

volatile std::sig_atomic_t stopped_by = 0;

// While it lives, a signal that would end us ends the wait; a second one ends us at once.
class WaitSignals {
 public:
  WaitSignals() {
    stopped_by = 0;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) continue;
      struct sigaction action{};
      action.sa_handler = [](int signal) { stopped_by = signal; };
      action.sa_flags = static_cast<int>(SA_RESETHAND);
      ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  WaitSignals(const WaitSignals&) = delete;
  WaitSignals& operator=(const WaitSignals&) = delete;
  ~WaitSignals() {
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  struct sigaction before_[std::size(kSignals)];
};

void check_options(const AttachOptions& options) {
  check(options.seconds >= 0.1 && options.seconds <= 600,
        "--seconds is out of range; got {}, expected 0.1 to 600",
        options.seconds);
  check(options.steps >= 0 && options.steps <= 100000,
        "--steps is out of range; got {}, expected 0 to 100000",
        options.steps);
  check_place(options.trace);
}

// Read from where it is kept, so that the report names that file; else it names the program.
doctor::Trace read(const attach::OnDemandTrace& recorded, const std::string& kept) {
  if (!kept.empty()) keep_trace(recorded.path, kept);
  doctor::Trace trace = doctor::read_trace(kept.empty() ? recorded.path : kept);
  if (kept.empty()) trace.source = recorded.program;
  print_warnings(trace, trace.source);
  return trace;
}

/// Empty where a signal stopped the wait. What comes after is ended by one as any other verb.
std::optional<attach::OnDemandTrace> record(const AttachOptions& options) {
  const WaitSignals signals;
  const attach::OnDemandRequest request{
      .pid = options.pid,
      .duration_ms = static_cast<int64_t>(options.seconds * 1000),
      .iterations = options.steps,
  };
  return attach::trace_on_demand(
      request,
      [] { return stopped_by != 0; },
      [](std::string_view line) { write_stderr(plain_line(line) + "\n"); });
}

}  // namespace

int run_attach(const AttachOptions& options, const ReportForm& form) {
  check_options(options);
  check_place(form.html);
  const std::optional<attach::OnDemandTrace> recorded = record(options);
  if (!recorded) {
    write_stderr(fmt::format("stopped; process {} goes on\n", options.pid));
    return kSignalBase + stopped_by;
  }
  return print_report(doctor::examine(read(*recorded, options.trace)), form);
}

}  // namespace ridge
