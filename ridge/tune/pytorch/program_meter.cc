#include "ridge/tune/pytorch/program_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/proof/record_trial.h"
#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge {
namespace {

// The probe needs to see so many steps and seconds of them, and may take so long: a share of the
// budget, or these seconds where they are more.
constexpr int64_t kProbeSteps = 10;
constexpr double kProbeSeconds = 2, kMostProbeSeconds = 60, kStartSeconds = 180;
constexpr double kProbeShare = 0.2;

// Seconds of the block that the share of waiting is read from, at least.
constexpr double kBaselineSeconds = 1.5;

// The user's own run takes so many seconds, where nobody says and none has ended.
constexpr double kPlannedSeconds = 3600;

constexpr int kPollMilliseconds = 50;

double seconds_of(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

ProgramProbe probe_program(const ForeignTarget& target, double budget_seconds) {
  const attach::ShimOptions options{.profiled_steps = 0, .probes = true};
  ForeignProgram program(target, {}, options, kProbeSteps * 100);
  ProgramProbe probe{.facts = {}, .how = program.place().how()};
  const double share = kProbeShare * budget_seconds;
  const int64_t begun = now_ns(), begun_wall = wall_ns();
  for (;;) {
    if (stop_requested()) throw TrialStopped("stopped before the program was known");
    const auto end = program.program().wait(kPollMilliseconds);
    const auto facts = program.facts();
    const double seconds = seconds_of(begun, now_ns());
    const bool steps = facts && facts->steps > 0;
    if (steps) {
      probe.facts = *facts;
      // A process writes its facts twice a second, and a short run only at its end.
      if (probe.start_seconds == 0)
        probe.start_seconds =
            std::clamp(seconds_of(begun_wall, facts->first_step_wall_ns), 0.0, seconds);
      const double stepped = seconds_of(facts->first_step_wall_ns, facts->last_step_wall_ns);
      if (facts->is_probed && facts->steps >= kProbeSteps && stepped >= kProbeSeconds) break;
      if (seconds > probe.start_seconds + std::max(kMostProbeSeconds, share)) break;
    }
    if (end && end->exit_code != 0) throw program.failure(*end);
    if (end && steps) {
      // With {steps} the run ended because the probe asks for few.
      if (target.command.has_steps()) break;
      probe.whole_steps = facts->steps;
      probe.whole_seconds = seconds;
      break;
    }
    if (end || (!steps && seconds > std::max(kStartSeconds, share)))
      throw VariantFailed(program.why_no_step());
  }
  return probe;
}

}  // namespace

void ProgramMeter::probe(const LoopView& loop) {
  loop.observer.on_message("the program runs once, to see what it does");
  probe_ = probe_program(target_, loop.budget.total());
  loop.summary.notes.push_back(probe_.how);
  take_trouble(times(), loop, false);
}

// A guard of the first change has three runs at least, two of them at a time.
ProgramTimes ProgramMeter::times() const {
  const double step = std::max(1e-4, probe_.facts.step_seconds);
  const ForeignRunnerOptions runner;
  ProgramTimes known{.step_seconds = step,
                     .first_step_seconds = probe_.start_seconds,
                     .whole_seconds = probe_.whole_seconds,
                     .whole_steps = probe_.whole_steps,
                     .has_steps = target_.command.has_steps()};
  known.costs.start_seconds = probe_.start_seconds;
  known.costs.block_seconds = std::max(kForeignBlockSeconds, step);
  if (probe_.whole_steps > 0) {
    const double run = static_cast<double>(probe_.whole_steps) * step;
    known.costs.run_seconds = timed_run_seconds(probe_.whole_steps, step);
    known.costs.start_seconds += run - known.costs.run_seconds;
  } else {
    known.costs.start_seconds +=
        std::max(runner.warm_seconds, static_cast<double>(runner.warm_steps) * step);
  }
  const double block = std::max(kBaselineSeconds, step);
  const double starts =
      known.costs.run_seconds > 0 ? std::ceil(block / known.costs.run_seconds) : 1;
  known.before_seconds = starts * known.costs.start_seconds + block;
  known.guard_seconds = 2 * (probe_.start_seconds + static_cast<double>(kForeignSteps) * step);
  return known;
}

void ProgramMeter::take_trouble(const ProgramTimes& known,
                                const LoopView& loop,
                                bool is_noted) const {
  const auto trouble = budget_trouble(known, loop.budget.total(), loop.budget.left());
  if (!trouble) return;
  if (trouble->is_hopeless && !is_dry_)
    throw UserError(fmt::format("'{}' cannot be tuned: {}", target_.command.text(), trouble->text),
                    trouble->fix);
  if (!is_noted) return;
  loop.summary.notes.push_back(fmt::format("{}; {}", trouble->text, trouble->fix));
  loop.observer.on_message(loop.summary.notes.back());
}

void ProgramMeter::measure_baseline(ForeignRunner& best, const LoopView& loop) {
  start_seconds_ = std::max(probe_.start_seconds, best.open_seconds());
  const double expected = std::max(1e-4, probe_.facts.step_seconds);
  const auto steps = std::max<int64_t>(
      best.least_steps(), static_cast<int64_t>(std::ceil(kBaselineSeconds / expected)));
  const Block block = best.run(steps);
  step_seconds_ = std::max(1e-9, block.seconds / static_cast<double>(steps));
  baseline_seconds_ = step_seconds_;
  wait_share_ = block.seconds > 0 ? std::min(1.0, block.waited_seconds / block.seconds) : 0;
  const attach::ProcessFacts& facts = probe_.facts;
  VariantSpeed& speed = loop.summary.baseline;
  speed.step_ms = 1e3 * step_seconds_;
  speed.loader_wait_share = wait_share_;
  speed.step_samples = facts.loaders.empty() ? 0 : static_cast<double>(facts.loaders.front().batch);
  speed.samples_per_s = speed.step_samples / step_seconds_;
  loop.summary.result = speed;
  loop.report(fmt::format("a step takes {:.3g} ms; {:.0f} % of it waits for data",
                          1e3 * step_seconds_,
                          100 * wait_share_));
  loop.report(fmt::format(
      "steps are {}; torch {} computes with {} threads",
      facts.step_source == "module" ? "calls of the outermost module" : "those of the optimizer",
      facts.torch,
      facts.threads));
  loop.report(fmt::format("it is started anew for each trial, which takes {:.1f} s until it steps",
                          start_seconds_));
}

void ProgramMeter::check_budget(const ForeignRunner& best,
                                double guard_seconds,
                                const LoopView& loop) {
  probe_.whole_steps = std::max(probe_.whole_steps, best.whole_steps());
  ProgramTimes measured = times();
  measured.step_seconds = step_seconds_;
  measured.costs = timing_costs(best, best, true);
  measured.before_seconds = 0;
  measured.guard_seconds = guard_seconds;
  if (probe_.whole_steps > 0 && measured.whole_seconds == 0)
    measured.whole_seconds =
        probe_.start_seconds + static_cast<double>(probe_.whole_steps) * step_seconds_;
  take_trouble(measured, loop, true);
}

void ProgramMeter::keep(const ForeignRunner& best, const TrialResult& trial) {
  step_seconds_ = std::max(1e-9, trial.after_seconds);
  wait_share_ = ridge::wait_share(trial.pairs, &Pair::after);
  probe_.whole_steps = std::max(probe_.whole_steps, best.whole_steps());
}

double ProgramMeter::planned_steps(const ForeignRunner& best) const {
  const int64_t whole = std::max(probe_.whole_steps, best.whole_steps());
  if (!planned_seconds_ && whole > 0) return static_cast<double>(whole);
  return planned_seconds_.value_or(kPlannedSeconds) / baseline_seconds_;
}

TimingCosts ProgramMeter::timing_costs(const ForeignRunner& best,
                                       const ForeignRunner& other,
                                       bool of_baseline) const {
  const TrialOptions options = foreign_trial_options(0, 0, best, other);
  const double step = of_baseline ? baseline_seconds_ : step_seconds_;
  TimingCosts costs{.start_seconds = std::max(start_seconds_, best.open_seconds()),
                    .block_seconds = std::max(options.block_seconds,
                                              static_cast<double>(options.least_steps) * step)};
  const int64_t whole = std::max({probe_.whole_steps, best.whole_steps(), other.whole_steps()});
  if (whole > 0) costs.run_seconds = timed_run_seconds(whole, step);
  return costs;
}

}  // namespace ridge
