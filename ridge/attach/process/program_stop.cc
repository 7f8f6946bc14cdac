#include "ridge/attach/process/program_stop.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "ridge/attach/process/program.h"
#include "ridge/attach/process/program_start.h"

namespace ridge::attach {
namespace {

constexpr double kFirstPauseSeconds = 2;
// A program that makes no steps may be saving what it has.
constexpr double kQuietPauseSeconds = 60;
// Steps that had ended before the request are in the facts by then, which are written twice a
// second.
constexpr double kSettleSeconds = 1;
// The step in which a program heard of the request may still be ended by it, but no other one.
constexpr int64_t kStepsThatGoOn = 2;

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) / 1e9;
}

}  // namespace

ProgramStop::ProgramStop(const Program& program, int64_t now_ns, double limit_seconds)
    : program_(program),
      first_ns_(now_ns),
      limit_seconds_(limit_seconds),
      pause_seconds_(kFirstPauseSeconds) {
  ask(now_ns);
}

void ProgramStop::ask(int64_t now_ns) {
  program_.interrupt();
  ++asked_;
  last_ns_ = now_ns;
  steps_.reset();
}

bool ProgramStop::look(int64_t now_ns, int64_t steps) {
  if (seconds_between(first_ns_, now_ns) >= limit_seconds_) return false;
  const double seconds = seconds_between(last_ns_, now_ns);
  if (seconds < kSettleSeconds) return true;
  if (!steps_) steps_ = steps;
  const bool goes_on = steps >= *steps_ + kStepsThatGoOn;
  if (seconds < (goes_on ? pause_seconds_ : std::max(pause_seconds_, kQuietPauseSeconds)))
    return true;
  ask(now_ns);
  pause_seconds_ *= 2;
  return true;
}

std::string ProgramStop::text() const {
  const bool is_by_term = interrupt_signal() == SIGTERM;
  return fmt::format(
      "process {} does not end: it was asked {} by {} in {:g} s, and runs on; end it by 'kill "
      "{}{}'",
      program_.pid(),
      asked_ == 1 ? "once" : fmt::format("{} times", asked_),
      is_by_term ? "SIGTERM" : "SIGINT",
      limit_seconds_,
      is_by_term ? "-KILL " : "",
      program_.pid());
}

}  // namespace ridge::attach
