// The runs that the guard compares. They are not timed, so two go on at once.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/train/stop.h"
#include "ridge/tune/foreign_optimizer.h"

namespace ridge {
namespace {

// Of the budget, for the steps of one run; so many steps at least and at most.
constexpr double kRunShare = 0.03;
constexpr int64_t kLeastSteps = kForeignSteps, kMostSteps = 60;

// Of the budget: a guard that has begun may take so much of what the proof was to have.
constexpr double kGuardGrace = 0.08;

// A run with a change may take so many times as long as one of the best so far.
constexpr double kPatience = 4, kMostCompileSeconds = 120;

constexpr int kPollMilliseconds = 20;

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

std::vector<attach::RunRecord> ForeignOptimizer::record_runs(
    const std::vector<std::pair<ForeignRecipe, int64_t>>& runs) {
  const size_t at_once = machine_.cpus > 1 ? 2 : 1;
  const double most =
      kPatience * guard_run_seconds() * static_cast<double>(at_once) + kMostCompileSeconds;
  std::vector<attach::RunRecord> records(runs.size());
  std::vector<Run> running;
  for (size_t next = 0; next < runs.size() || !running.empty();) {
    if (stop_requested()) throw TrialStopped("stopped within the guard");
    // What was kept before must still be proven.
    if (search_seconds_left() < -kGuardGrace * request_.budget_seconds)
      throw TrialStopped("what is left of the budget belongs to the proof");
    while (next < runs.size() && running.size() < at_once) {
      const auto& [recipe, reseed] = runs[next];
      const attach::ShimOptions options{
          .profiled_steps = 0, .record_steps = guard_steps(), .reseed = reseed};
      running.push_back(
          {std::make_unique<ForeignProgram>(request_.target, recipe, options, guard_steps() + 1),
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

// The first run twice, and of the other seeds those that are not there yet.
void ForeignOptimizer::record_baseline(int64_t seeds) {
  std::vector<std::pair<ForeignRecipe, int64_t>> runs;
  auto had = baseline_ ? static_cast<int64_t>(baseline_->seeds.size()) : 0;
  if (had >= seeds) return;
  observer_.on_message("the guard runs your program as it is, to compare with");
  const bool is_first = !baseline_;
  if (is_first) runs.emplace_back(ForeignRecipe{}, 0);
  for (; had < seeds; ++had) runs.emplace_back(ForeignRecipe{}, had);
  std::vector<attach::RunRecord> records = record_runs(runs);
  if (is_first) {
    baseline_.emplace();
    baseline_->again = std::move(records.front());
    records.erase(records.begin());
  }
  for (attach::RunRecord& record : records) baseline_->seeds.push_back(std::move(record));
}

// Of a program that only calls modules one run says all: its outputs.
int64_t ForeignOptimizer::seeds_for(SemanticClass semantic_class) const {
  return semantic_class == SemanticClass::kBitIdentical || facts_.step_source == "module"
             ? 1
             : kForeignSeeds;
}

// Classes 2 and 3: pairs of runs, against the program as it is, so that what several such changes
// lose adds up.
ForeignGuardAnswer ForeignOptimizer::guard_coarse(const ForeignRecipe& recipe,
                                                  SemanticClass semantic_class) {
  // On other samples no step is the same, whatever is changed besides.
  if (coarse_) semantic_class = std::max(semantic_class, coarse_->semantic_class);
  std::vector<std::pair<ForeignRecipe, int64_t>> runs;
  for (int64_t seed = 0; seed < seeds_for(semantic_class); ++seed) runs.emplace_back(recipe, seed);
  std::vector<attach::RunRecord> records = record_runs(runs);
  ForeignGuardAnswer answer = judge_runs(*baseline_, records, semantic_class);
  if (answer.passed)
    coarse_ = {.recipe = recipe,
               .semantic_class = semantic_class,
               .runs = {.seeds = std::move(records), .again = {}}};
  return answer;
}

// Classes 0 and 1, against the program without this change: with those of classes 2 and 3 that were
// kept, beside which nothing so fine could be seen.
ForeignGuardAnswer ForeignOptimizer::guard_fine(const ForeignRecipe& recipe,
                                                SemanticClass semantic_class) {
  std::vector<std::pair<ForeignRecipe, int64_t>> runs = {{recipe, 0}};
  const bool needs_again = coarse_ && !coarse_->has_again;
  if (needs_again) runs.emplace_back(coarse_->recipe, 0);
  std::vector<attach::RunRecord> records = record_runs(runs);
  if (needs_again) {
    coarse_->runs.again = std::move(records.back());
    coarse_->has_again = true;
    records.pop_back();
  }
  return judge_runs(coarse_ ? coarse_->runs : *baseline_, records, semantic_class);
}

ForeignGuardAnswer ForeignOptimizer::guard_answer(const ForeignRecipe& recipe,
                                                  SemanticClass semantic_class) {
  record_baseline(seeds_for(semantic_class));
  // Where bits cannot be compared, losses are, in the noise of the seeds.
  if (!baseline_->is_repeatable()) record_baseline(seeds_for(SemanticClass::kReassociation));
  return semantic_class >= SemanticClass::kPrecision ? guard_coarse(recipe, semantic_class)
                                                     : guard_fine(recipe, semantic_class);
}

bool ForeignOptimizer::passes_guard(const ForeignRecipe& recipe, TrialRecord& record) {
  ForeignGuardAnswer answer;
  try {
    answer = guard_answer(recipe, record.semantic_class);
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
