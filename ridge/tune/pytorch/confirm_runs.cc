#include "ridge/tune/pytorch/confirm_runs.h"

#include <algorithm>
#include <cmath>

#include "ridge/attach/run_record.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/io/file.h"
#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge {
namespace {

constexpr int kPollMilliseconds = 50;
// A step whose numbers are recorded takes longer by this factor, about.
constexpr double kRecorded = 1.25;
constexpr int64_t kMostSteps = 100'000;
// Facts are written twice a second: those of the last step that counts are awaited for so long.
constexpr double kFactsSeconds = 5;
// A run may take so many times as long as planned, and so many seconds more: a compiler may start.
constexpr double kPatience = 4, kMoreSeconds = 120;
// The last lines of a program are within so many bytes.
constexpr size_t kMostOutput = size_t{1} << 20;

int64_t steps_within(const ProgramCosts& costs, double seconds) {
  const double step = kRecorded * std::max(1e-6, costs.baseline_seconds);
  const double steps = std::floor((seconds - costs.first_step_seconds) / step);
  return static_cast<int64_t>(
      std::clamp(steps, static_cast<double>(kForeignSteps), static_cast<double>(kMostSteps)));
}

std::string end_of_file(const std::string& path) {
  try {
    std::string text = read_file(path);
    return text.size() > kMostOutput ? text.substr(text.size() - kMostOutput) : text;
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace

ConfirmRuns::ConfirmRuns(const ForeignTarget& target,
                         const ForeignRecipe& result,
                         const ProgramCosts& costs,
                         double seconds)
    : target_(target),
      result_(result),
      has_steps_(costs.has_steps),
      steps_(steps_within(costs, seconds)),
      work_(work_of(costs.facts, result)),
      most_seconds_(kPatience * seconds + kMoreSeconds) {}

TrainedRun ConfirmRuns::operator()(bool is_result, int64_t reseed) const {
  const int64_t begun = now_ns();
  const auto seconds = [&] { return static_cast<double>(now_ns() - begun) * 1e-9; };
  const int64_t work = is_result ? work_ : 1, steps = (steps_ + work - 1) / work;
  const attach::ShimOptions shim{
      .profiled_steps = 0, .record_steps = steps, .reseed = reseed, .watches_losses = true};
  ForeignProgram program(target_, is_result ? result_ : ForeignRecipe{}, shim, steps);
  TrainedRun run;
  std::optional<attach::RunRecord> record;
  double whole_at = 0;  // seconds, when all steps were recorded
  for (;;) {
    if (stop_requested()) throw TrialStopped("stopped by a signal");
    const auto end = program.program().wait(kPollMilliseconds);
    if (end && end->exit_code != 0) throw program.failure(*end);
    run.has_ended = end.has_value();
    if (!record || end) record = attach::read_record(program.shim());
    if (end) break;
    if (record && record->is_whole && whole_at == 0) whole_at = seconds();
    // A program with {steps} ends by itself, mostly behind an evaluation.
    if (whole_at > 0 && !has_steps_) {
      const auto facts = program.facts();
      if ((facts && facts->steps > steps) || seconds() > whole_at + kFactsSeconds) break;
    }
    if (seconds() > most_seconds_) throw program.failure("a run did not end in time");
  }
  run.seconds = seconds();
  if (record) run.losses = by_samples(*record, work).losses;
  if (run.has_ended) run.printed = printed_loss(end_of_file(program.place().output_path()));
  if (const auto facts = program.facts()) {
    run.evaluations = facts->evaluations;
    run.evaluated = facts->evaluated;
    std::erase_if(run.evaluations, [&](const attach::EvaluationFacts& each) {
      return (each.is_open && !run.has_ended) || (!run.has_ended && each.step > steps);
    });
    for (attach::EvaluationFacts& each : run.evaluations) each.step *= work;
  }
  return run;
}

}  // namespace ridge
