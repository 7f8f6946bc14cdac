#include "ridge/tune/pytorch/program_guard.h"

#include <algorithm>

#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge {
namespace {

// The steps of one run take this share of the budget, within the numbers of steps.
constexpr double kRunShare = 0.015;
constexpr int64_t kLeastSteps = kForeignSteps, kMostSteps = 60;
// Runs beside which one with larger batches is held have so many of its steps, at least.
constexpr int64_t kLeastLargeSteps = 2 * kForeignSteps;

/// A number of threads that splits sums elsewhere; 0: there is none.
int64_t other_threads(int64_t threads, int cpus) {
  if (threads > 1) return threads / 2;
  return cpus > 1 ? 2 : 0;
}

}  // namespace

void ProgramGuard::begin(const LoopView& loop, int64_t most_work) {
  observer_ = &loop.observer;
  const auto steps = static_cast<int64_t>(kRunShare * loop.budget.total() / costs_.step_seconds);
  const int64_t large = most_work > 1 ? most_work * kLeastLargeSteps : 0;
  steps_ = std::max(large, std::clamp(steps, kLeastSteps, kMostSteps));
  runs_.begin(costs_.imports, costs_.facts, steps_, loop.summary.notes);
  reference_.emplace([this](const ForeignReference::Runs& runs) { return record(runs); },
                     costs_.facts.step_source == "module",
                     other_threads(costs_.facts.threads, cpus_));
}

// Two runs go on at a time. Runs that are forked were timed so.
double ProgramGuard::seconds(SemanticClass semantic_class) const {
  const int64_t runs = reference_->runs_for(semantic_class);
  const auto at_once = static_cast<int64_t>(at_once_);
  const double usual = costs_.run_seconds(steps_);
  const double seconds = std::min(usual, runs_.forked_seconds().value_or(usual));
  return static_cast<double>((runs + at_once - 1) / at_once) * seconds;
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

std::vector<attach::RunRecord> ProgramGuard::record(const ForeignReference::Runs& runs) {
  if (runs.front().recipe.empty() && runs.front().nudge == 0)
    observer_->on_message("the guard runs your program as it is, to compare with");
  const double usual = costs_.run_seconds(steps_) * static_cast<double>(at_once_);
  return runs_.record(runs, {.until_ns = until_ns_, .usual_seconds = usual});
}

}  // namespace ridge
