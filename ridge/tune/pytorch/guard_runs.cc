#include "ridge/tune/pytorch/guard_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "ridge/base/clock.h"
#include "ridge/base/stats.h"
#include "ridge/base/stop.h"
#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge {
namespace {

using attach::WarmParent;

constexpr int kPollMilliseconds = 20;

// A run with a change may take so many times as long as one of the best so far, and one that is
// started anew may compile.
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

bool is_plain(const ForeignRun& run) {
  return run.recipe.empty() && run.reseed == 0 && run.nudge == 0;
}

bool needs_own_start(const ForeignRecipe& recipe) {
  return std::ranges::any_of(knobs(), [&](const Knob& knob) {
    return knob.needs_own_start && !recipe.get(knob.key).empty();
  });
}

}  // namespace

struct GuardRuns::Run {
  std::unique_ptr<ForeignProgram> program;
  size_t place = 0;
  int64_t begun_ns = 0, until_ns = 0;
  bool is_control = false;
};

/// One call of record().
struct GuardRuns::Recording {
  const ForeignReference::Runs& runs;
  const GuardRunLimits& limits;
  std::deque<size_t> waiting{};  ///< Places of runs that have not begun.
  std::vector<Run> running{};
  std::set<size_t> again{};  ///< Places of runs that failed when they were forked.
  std::vector<attach::RunRecord> records{};
  bool has_reference = false, has_control = false;  ///< They go on, or have ended.
  size_t control = 0;                               ///< Its place.
};

GuardRuns::~GuardRuns() = default;

void GuardRuns::begin(const ProgramImports& imports,
                      int64_t steps,
                      std::vector<std::string>& notes) {
  steps_ = steps;
  notes_ = &notes;
  imports_ = imports.text;
  parent_recipe_ = waiting_asleep({});
  trust_ = Trust::kWanted;
  if (!imports.refusal.empty()) give_up(imports.refusal);
  if (target_.consent == attach::Consent::kSandbox) give_up("each has a sandbox of its own");
}

void GuardRuns::give_up(const std::string& why) {
  if (trust_ == Trust::kNever) return;
  trust_ = Trust::kNever;
  notes_->push_back("each run of the guard imports all packages anew: " + why);
}

std::optional<double> GuardRuns::forked_seconds() const {
  if (trust_ != Trust::kTrusted || seconds_.empty()) return std::nullopt;
  return median(seconds_);
}

bool GuardRuns::is_importing() const {
  return trust_ != Trust::kNever && parent_ != nullptr &&
         parent_->parent()->state() == WarmParent::State::kImporting;
}

void GuardRuns::open_parent() {
  trust_ = Trust::kUntried;
  parent_begun_ns_ = now_ns();
  try {
    // It writes nothing but what a package prints, so no folder has to be kept from it. Recorded
    // runs have a fixed order of sets, which Python settles at its start.
    ForeignTarget target = target_;
    target.consent = attach::Consent::kRerun;
    const attach::ShimOptions shim{.profiled_steps = 0, .record_steps = 1, .imports = imports_};
    parent_ = std::make_unique<ForeignProgram>(target, parent_recipe_, shim, steps_ + 1);
  } catch (const UserError& error) {
    give_up(error.what());
  }
}

// One that has ended is kept until no run is left that was forked: to end its supervisor ends them.
void GuardRuns::look_at_parent(double usual_seconds) {
  if (trust_ == Trust::kNever || parent_ == nullptr) return;
  if (parent_->parent()->look() == WarmParent::State::kGone)
    give_up(parent_->parent()->note());
  else if (parent_->program().wait(0))
    give_up("the process that should import them ended");
  else if (is_importing() &&
           static_cast<double>(now_ns() - parent_begun_ns_) * 1e-9 > kPatience * usual_seconds)
    give_up("the process that should import them takes too long");
}

// A run that waits goes on when another ends, or the parent is there.
GuardRuns::Way GuardRuns::way_of(const ForeignRun& run, const Recording& recording) const {
  const bool may_fork = trust_ != Trust::kNever && parent_ != nullptr &&
                        !needs_own_start(run.recipe) &&
                        !recording.again.contains(recording.waiting.front()) &&
                        waiting_asleep(run.recipe).environment() == parent_recipe_.environment();
  if (!may_fork) return Way::kAnew;
  if (is_importing()) return Way::kLater;
  if (trust_ == Trust::kTrusted) return Way::kForked;
  if (recording.has_control) return Way::kLater;
  const bool has_reference = recording.has_reference || reference_;
  return is_plain(run) && has_reference ? Way::kForked : Way::kAnew;
}

void GuardRuns::start(Recording& recording, Way way) {
  const size_t place = recording.waiting.front();
  const auto& [recipe, reseed, nudge] = recording.runs[place];
  const attach::ShimOptions shim{
      .profiled_steps = 0, .record_steps = steps_, .reseed = reseed, .nudge = nudge};
  Run run{.program = nullptr, .place = place, .begun_ns = now_ns()};
  run.program = std::make_unique<ForeignProgram>(target_,
                                                 waiting_asleep(recipe),
                                                 shim,
                                                 steps_ + 1,
                                                 way == Way::kForked ? parent_->parent() : nullptr);
  const bool is_forked = run.program->is_forked();
  if (way == Way::kForked && !is_forked) give_up(parent_->parent()->why());
  run.until_ns = LoopBudget::deadline(kPatience * recording.limits.usual_seconds +
                                      (is_forked ? 0 : kMostCompileSeconds));
  if (is_forked && trust_ == Trust::kUntried) {
    run.is_control = recording.has_control = true;
    recording.control = place;
  }
  if (!is_forked && is_plain(recording.runs[place])) recording.has_reference = true;
  recording.waiting.pop_front();
  recording.running.push_back(std::move(run));
}

// The first of the program as it is, by a start and by a fork, both in hand.
void GuardRuns::compare_control(Recording& recording) {
  if (trust_ != Trust::kUntried || !reference_ || !control_) return;
  if (ForeignBaseline{.seeds = {*reference_}, .again = *control_}.is_repeatable()) {
    trust_ = Trust::kTrusted;
    const std::string& missing = parent_->parent()->note();
    notes_->push_back(
        "runs of the guard are forked from a process that has imported the packages" +
        (missing.empty() ? std::string() : fmt::format(" up to torch ({})", missing)) +
        ", where a change allows it; the first had the bits of a run that was started anew");
    return;
  }
  give_up(
      "a run that was forked from a process that had imported them did not have the bits of one "
      "that was started anew");
  recording.waiting.push_front(recording.control);
  recording.again.insert(recording.control);
}

void GuardRuns::ended(Recording& recording, Run& run, attach::RunRecord record) {
  const bool is_forked = run.program->is_forked();
  if (is_forked) {
    ++forked_;
    seconds_.push_back(static_cast<double>(now_ns() - run.begun_ns) * 1e-9);
  } else if (!reference_ && is_plain(recording.runs[run.place])) {
    reference_ = record;
  }
  if (!is_forked && recording.again.contains(run.place) && trust_ == Trust::kTrusted)
    give_up("a run failed that was forked from a process that had imported them, and not anew");
  if (run.is_control) control_ = record;
  recording.records[run.place] = std::move(record);
  run.program.reset();
  compare_control(recording);
}

// Its fork may be the reason: so it runs once more, anew.
void GuardRuns::failed(Recording& recording, Run& run, const VariantFailed& failure) {
  if (!run.program->is_forked()) throw failure;
  if (run.is_control) give_up("a run that was forked from a process that had imported them failed");
  recording.again.insert(run.place);
  recording.waiting.push_front(run.place);
  run.program.reset();
}

void GuardRuns::poll(Recording& recording, Run& run) {
  try {
    const auto end = run.program->program().wait(kPollMilliseconds);
    std::optional<attach::RunRecord> record = attach::read_record(run.program->shim());
    if (record && record->is_whole) return ended(recording, run, *std::move(record));
    if (end && end->exit_code != 0) throw run.program->failure(*end);
    if (end) return ended(recording, run, record.value_or(attach::RunRecord{}));
    if (now_ns() > run.until_ns)
      throw run.program->failure("a run for the guard did not end in time");
  } catch (const VariantFailed& failure) {
    failed(recording, run, failure);
  }
}

std::vector<attach::RunRecord> GuardRuns::record(const ForeignReference::Runs& runs,
                                                 const GuardRunLimits& limits) {
  Recording recording{.runs = runs, .limits = limits};
  recording.records.resize(runs.size());
  for (size_t place = 0; place < runs.size(); ++place) recording.waiting.push_back(place);
  std::vector<Run>& running = recording.running;
  while (!recording.waiting.empty() || !running.empty()) {
    if (stop_requested()) throw TrialStopped("stopped within the guard");
    if (now_ns() > limits.until_ns)
      throw TrialStopped("what is left of the budget belongs to the proof");
    look_at_parent(limits.usual_seconds);
    const auto is_free = [&] { return running.size() + (is_importing() ? 1 : 0) < at_once_; };
    while (!recording.waiting.empty() && is_free()) {
      const Way way = way_of(runs[recording.waiting.front()], recording);
      if (way == Way::kLater) break;
      start(recording, way);
      if (trust_ == Trust::kWanted && recording.has_reference && is_free()) open_parent();
    }
    if (trust_ == Trust::kWanted && recording.has_reference && is_free()) open_parent();
    if (running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(kPollMilliseconds));
    // One that is over may have another begin again, behind those that run.
    for (size_t i = 0; i < running.size(); ++i) poll(recording, running[i]);
    std::erase_if(running, [](const Run& run) { return run.program == nullptr; });
  }
  if (trust_ == Trust::kNever) parent_.reset();
  return std::move(recording.records);
}

}  // namespace ridge
