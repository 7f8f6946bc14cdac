// The runs that the guard compares. They are not timed, so two go on at once.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/tune/pytorch/optimizer.h"

namespace ridge {
namespace {

// Of the budget, for the steps of one run; so many steps at least and at most.
constexpr double kRunShare = 0.015;
constexpr int64_t kLeastSteps = kForeignSteps, kMostSteps = 60;

// A run with a change may take so many times as long as one of the best so far.
constexpr double kPatience = 4, kMostCompileSeconds = 120;

constexpr int kPollMilliseconds = 20;

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

struct Run {
  std::unique_ptr<ForeignProgram> program;
  size_t place = 0;
  int64_t until_ns = 0;
};

// Nothing while it goes on.
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

// As many for all runs, however fast the best has become since.
int64_t ForeignOptimizer::guard_steps() {
  if (guard_steps_ == 0) {
    const double step = std::max(1e-4, step_seconds_);
    const auto steps = static_cast<int64_t>(kRunShare * request_.budget_seconds / step);
    guard_steps_ = std::clamp(steps, kLeastSteps, kMostSteps);
  }
  return guard_steps_;
}

double ForeignOptimizer::guard_run_seconds() {
  return start_seconds_ + static_cast<double>(guard_steps()) * step_seconds_;
}

// Two runs go on at a time. The first guard runs the program as it is twice, besides.
double ForeignOptimizer::guard_seconds() { return (reference_ ? 1 : 2) * guard_run_seconds(); }

std::vector<attach::RunRecord> ForeignOptimizer::record_runs(const ForeignReference::Runs& runs) {
  if (runs.front().first.empty())
    observer_.on_message("the guard runs your program as it is, to compare with");
  const size_t at_once = machine_.cpus > 1 ? 2 : 1;
  const double most =
      kPatience * guard_run_seconds() * static_cast<double>(at_once) + kMostCompileSeconds;
  std::vector<attach::RunRecord> records(runs.size());
  std::vector<Run> running;
  for (size_t next = 0; next < runs.size() || !running.empty();) {
    if (stop_requested()) throw TrialStopped("stopped within the guard");
    // The proof's share of the budget may be more than it needs, and the guard takes the rest.
    if (seconds_left() < proof_need())
      throw TrialStopped("what is left of the budget belongs to the proof");
    while (next < runs.size() && running.size() < at_once) {
      const auto& [recipe, reseed] = runs[next];
      const attach::ShimOptions options{
          .profiled_steps = 0, .record_steps = guard_steps(), .reseed = reseed};
      running.push_back({std::make_unique<ForeignProgram>(
                             request_.target, waiting_asleep(recipe), options, guard_steps() + 1),
                         next++,
                         deadline(most)});
    }
    for (Run& run : running)
      if (std::optional<attach::RunRecord> record = finished(run)) {
        records[run.place] = std::move(*record);
        run.program.reset();
      }
    std::erase_if(running, [](const Run& run) { return run.program == nullptr; });
  }
  return records;
}

bool ForeignOptimizer::passes_guard(const ForeignRecipe& recipe, TrialRecord& record) {
  ForeignGuardAnswer answer;
  try {
    if (!reference_)
      reference_.emplace([this](const ForeignReference::Runs& runs) { return record_runs(runs); },
                         facts_.step_source == "module");
    answer = reference_->judge(recipe, record.semantic_class);
  } catch (const TrialStopped& stop) {
    if (stop_requested()) throw;
    answer.can_tell = false;
    answer.text = fmt::format("the guard had no verdict within the time: {}", stop.what());
  }
  record.guard = answer.text;
  if (!answer.passed) {
    record.verdict = answer.can_tell ? TrialVerdict::kGuardFailed : TrialVerdict::kUnguarded;
    record.reason = answer.text;
    return false;
  }
  OptimizeGuard& guard = result_.summary.guard;
  const bool is_first = guard.verdict != "passed";
  guard.text = (is_first ? "" : guard.text + "; ") + record.technique + ": " + answer.text;
  guard.verdict = "passed";
  if (answer.margin) {
    guard.margin = answer.margin;
    guard.power = answer.power;
  }
  return true;
}

}  // namespace ridge
