#include "ridge/tune/pytorch/program_guard.h"

#include <algorithm>
#include <cstdlib>

#include "ridge/base/clock.h"
#include "ridge/base/stop.h"

namespace ridge {
namespace {

constexpr int kPollMilliseconds = 20;

// The steps of one run take this share of the budget, within the numbers of steps.
constexpr double kRunShare = 0.015;
constexpr int64_t kLeastSteps = kForeignSteps, kMostSteps = 60;
// Runs beside which one with larger batches is held have so many of its steps, at least.
constexpr int64_t kLeastLargeSteps = 2 * kForeignSteps;

// A run with a change may take so many times as long as one of the best so far.
constexpr double kPatience = 4, kMostCompileSeconds = 120;

// Two programs at once have more threads than there are processors: those of one that wait for each
// other must not keep the other's from running. It moves no bit.
constexpr std::pair<const char*, const char*> kWaitsAsleep[] = {{"OMP_WAIT_POLICY", "PASSIVE"},
                                                                {"KMP_BLOCKTIME", "0"}};

ForeignRecipe waiting_asleep(ForeignRecipe recipe) {
  for (const auto& [name, value] : kWaitsAsleep)
    if (std::getenv(name) == nullptr && !recipe.environment().contains(name))
      recipe.set_environment(name, value);
  return recipe;
}

/// A number of threads that splits sums elsewhere; 0: there is none.
int64_t other_threads(int64_t threads, int cpus) {
  if (threads > 1) return threads / 2;
  return cpus > 1 ? 2 : 0;
}

struct Run {
  std::unique_ptr<ForeignProgram> program;
  size_t place = 0;
  int64_t until_ns = 0;
};

// The record of a run that is over; nothing while it goes on.
std::optional<attach::RunRecord> finished(Run& run) {
  const auto end = run.program->program().wait(kPollMilliseconds);
  std::optional<attach::RunRecord> record = attach::read_record(run.program->shim());
  if (record && record->is_whole) return record;
  if (end && end->exit_code != 0) throw run.program->failure(*end);
  if (end) return record.value_or(attach::RunRecord{});
  if (now_ns() > run.until_ns)
    throw run.program->failure("a run for the guard did not end in time");
  return std::nullopt;
}

}  // namespace

void ProgramGuard::begin(const LoopView& loop, int64_t most_work) {
  observer_ = &loop.observer;
  const auto steps = static_cast<int64_t>(kRunShare * loop.budget.total() / costs_.step_seconds);
  const int64_t large = most_work > 1 ? most_work * kLeastLargeSteps : 0;
  steps_ = std::max(large, std::clamp(steps, kLeastSteps, kMostSteps));
  reference_.emplace([this](const ForeignReference::Runs& runs) { return record(runs); },
                     costs_.facts.step_source == "module",
                     other_threads(costs_.facts.threads, cpus_));
}

// Two runs go on at a time.
double ProgramGuard::seconds(SemanticClass semantic_class) const {
  const int64_t runs = reference_->runs_for(semantic_class);
  const auto at_once = static_cast<int64_t>(at_once_);
  return static_cast<double>((runs + at_once - 1) / at_once) * costs_.run_seconds(steps_);
}

GuardOutcome ProgramGuard::judge(const ForeignRecipe& recipe,
                                 SemanticClass semantic_class,
                                 int64_t until_ns) {
  until_ns_ = until_ns;
  return reference_->judge(recipe, semantic_class);
}

GuardOutcome ProgramGuard::judge_rest(const ForeignRecipe& rest,
                                      SemanticClass left,
                                      int64_t until_ns) {
  until_ns_ = until_ns;
  return reference_->judge_rest(rest, left);
}

std::vector<attach::RunRecord> ProgramGuard::record(const ForeignReference::Runs& runs) const {
  if (runs.front().recipe.empty() && runs.front().nudge == 0)
    observer_->on_message("the guard runs your program as it is, to compare with");
  const double usual = costs_.run_seconds(steps_) * static_cast<double>(at_once_);
  const double most_seconds = kPatience * usual + kMostCompileSeconds;
  std::vector<attach::RunRecord> records(runs.size());
  std::vector<Run> running;
  for (size_t next = 0; next < runs.size() || !running.empty();) {
    if (stop_requested()) throw TrialStopped("stopped within the guard");
    if (now_ns() > until_ns_) throw TrialStopped("what is left of the budget belongs to the proof");
    while (next < runs.size() && running.size() < at_once_) {
      const auto& [recipe, reseed, nudge] = runs[next];
      const int64_t work = work_of(costs_.facts, recipe), steps = (steps_ + work - 1) / work;
      const attach::ShimOptions shim{
          .profiled_steps = 0, .record_steps = steps, .reseed = reseed, .nudge = nudge};
      running.push_back(
          {std::make_unique<ForeignProgram>(target_, waiting_asleep(recipe), shim, steps + 1),
           next++,
           LoopBudget::deadline(most_seconds)});
    }
    for (Run& run : running)
      if (std::optional<attach::RunRecord> whole = finished(run)) {
        records[run.place] =
            by_samples(*std::move(whole), work_of(costs_.facts, runs[run.place].recipe));
        run.program.reset();
      }
    std::erase_if(running, [](const Run& run) { return run.program == nullptr; });
  }
  return records;
}

}  // namespace ridge
