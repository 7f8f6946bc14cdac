#include "ridge/tune/pytorch/usage_runner.h"

#include <algorithm>

namespace ridge {
namespace {

bool is_same_program(const attach::TreeSample& before, const attach::TreeSample& after) {
  if (before.processes.empty() || after.processes.empty()) return false;
  const attach::ProcessSample &was = before.processes.front(), &is = after.processes.front();
  return was.pid == is.pid && was.start_ticks == is.start_ticks;
}

}  // namespace

Block UsageRunner::run(int64_t steps) {
  const attach::TreeSample before = counters_.sample();
  counters_.joules();  // what others took meanwhile
  const int64_t begun = counters_.now();
  const Block block = runner_.run(steps);
  const int64_t ended = counters_.now();
  const std::optional<double> joules = counters_.joules();
  const attach::TreeSample after = counters_.sample();
  if (!is_same_program(before, after)) return block;
  if (joules) {
    joules_ += *joules;
    weighed_steps_ += steps;
  }
  const attach::TreeLoad load = attach::load_between(before, after);
  cpu_seconds_ += load.cpus * load.seconds;
  seconds_ += 1e-9 * static_cast<double>(ended - begun);  // without reading the counters
  return block;
}

std::optional<double> UsageRunner::joules_per_step() const {
  if (!(joules_ > 0)) return std::nullopt;  // counters of virtual machines stand still
  return joules_ / static_cast<double>(weighed_steps_);
}

std::optional<double> UsageRunner::idle_share(double cpus) const {
  if (!(seconds_ > 0) || !(cpus > 0)) return std::nullopt;
  return std::clamp(1 - cpu_seconds_ / (seconds_ * cpus), 0.0, 1.0);
}

}  // namespace ridge
