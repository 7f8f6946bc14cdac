#include "ridge/tune/pytorch/optimize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/machine/machine.h"
#include "ridge/base/stop.h"
#include "ridge/io/checksum.h"
#include "ridge/proof/record_trial.h"
#include "ridge/tune/pytorch/optimizer.h"

namespace ridge {
namespace {

// Shares of the budget.
constexpr double kSearchShare = 0.75;
constexpr double kProbeShare = 0.2;

// The proof's blocks take so many seconds at least, or that share of the budget.
constexpr double kProofSeconds = 12, kProofShare = 0.05;

// Of the probe: what it needs to see, and how long it may take.
constexpr int64_t kProbeSteps = 10;
constexpr double kProbeSeconds = 2, kMostProbeSeconds = 60, kStartSeconds = 180;

// A change of somebody's program has to be worth its words in a recipe. What gains less than the
// second is soon given up: a trial costs a start of the program besides.
constexpr double kWorth = 1.02, kHope = 1.05;

// So long are the blocks that the share of waiting is read from.
constexpr double kBaselineSeconds = 1.5;

constexpr int kPollMilliseconds = 50;

// "train.py" of "python -u train.py --epochs 3".
std::string script_of(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word.ends_with(".py")) return word;
  return words.front();
}

double batch_of(const attach::ProcessFacts& facts) {
  return facts.loaders.empty() ? 0 : static_cast<double>(facts.loaders.front().batch);
}

}  // namespace

std::string command_hash(const attach::CommandTemplate& command) {
  return checksum_text(checksum(as_bytes(command.text())));
}

ForeignOptimizer::ForeignOptimizer(const ForeignOptimizeRequest& request,
                                   OptimizeObserver& observer)
    : request_(request), observer_(observer), start_(now_ns()), machine_(find_machine()) {
  machine_.cpus = usable_cpus();
}

double ForeignOptimizer::seconds_left() const {
  return request_.budget_seconds - static_cast<double>(now_ns() - start_) * 1e-9;
}

int64_t ForeignOptimizer::deadline(double seconds_from_now) const {
  return now_ns() + static_cast<int64_t>(std::max(0.0, seconds_from_now) * 1e9);
}

double ForeignOptimizer::proof_block_seconds() const {
  return std::min(kProofSeconds, kProofShare * request_.budget_seconds);
}

TimingCosts ForeignOptimizer::timing_costs(const ForeignRunner& other, double step_seconds) const {
  const TrialOptions options = foreign_trial_options(0, 0, *best_, other);
  TimingCosts costs{
      .start_seconds = std::max(start_seconds_, best_->open_seconds()),
      .block_seconds =
          std::max(options.block_seconds, static_cast<double>(options.least_steps) * step_seconds)};
  if (whole_steps_ > 0) costs.run_seconds = timed_run_seconds(whole_steps_, step_seconds);
  return costs;
}

// The program as it is is the slower one, and sets the length of the blocks.
double ForeignOptimizer::proof_need() const {
  const double step_seconds = 1e-3 * result_.summary.baseline.step_ms;
  return proof_seconds(timing_costs(*best_, step_seconds), proof_pairs_, proof_block_seconds());
}

double ForeignOptimizer::search_seconds_left() const {
  return seconds_left() - std::max((1 - kSearchShare) * request_.budget_seconds, proof_need());
}

std::unique_ptr<ForeignRunner> ForeignOptimizer::open(const ForeignRecipe& recipe,
                                                      double seconds) const {
  return std::make_unique<ForeignRunner>(
      request_.target, recipe, ForeignRunnerOptions{.deadline_ns = deadline(seconds)});
}

TrialOptions ForeignOptimizer::trial_options(const ForeignRunner& before,
                                             const ForeignRunner& after,
                                             double most_seconds) {
  TrialOptions options = foreign_trial_options(deadline(std::min(most_seconds, seconds_left())),
                                               request_.seed + static_cast<uint64_t>(timed_),
                                               before,
                                               after);
  options.judge = proof_judge();
  return options;
}

JudgeOptions ForeignOptimizer::proof_judge() const {
  return {.worth = std::log(kWorth), .hope = std::log(kHope)};
}

TrialRecord ForeignOptimizer::new_record(std::string_view technique) const {
  TrialRecord record;
  record.technique = technique;
  record.machine = fingerprint_;
  record.started = utc_time(wall_ns());
  if (!best_recipe_.empty()) record.recipe_before = to_toml(best_recipe_);
  return record;
}

void ForeignOptimizer::finish(TrialRecord record) {
  record.number = static_cast<int64_t>(result_.trials.size()) + 1;
  observer_.on_trial(record);
  result_.trials.push_back(std::move(record));
}

void ForeignOptimizer::probe() {
  observer_.on_message("the program runs once, to see what it does");
  attach::ShimOptions options{.profiled_steps = 0, .probes = true};
  ForeignProgram program(request_.target, {}, options, kProbeSteps * 100);
  result_.summary.notes.push_back(program.place().how());
  const int64_t begun = now_ns(), begun_wall = wall_ns();
  std::optional<attach::ProcessFacts> facts;
  for (bool is_done = false; !is_done;) {
    if (stop_requested()) throw TrialStopped("stopped before the program was known");
    const auto end = program.program().wait(kPollMilliseconds);
    facts = program.facts();
    const double seconds = static_cast<double>(now_ns() - begun) * 1e-9;
    const bool steps = facts && facts->steps > 0;
    // A process writes its facts twice a second, and a short run only at its end.
    if (steps && start_seconds_ == 0)
      start_seconds_ = std::clamp(
          static_cast<double>(facts->first_step_wall_ns - begun_wall) * 1e-9, 0.0, seconds);
    const double stepped =
        steps ? static_cast<double>(facts->last_step_wall_ns - facts->first_step_wall_ns) * 1e-9
              : 0;
    is_done = steps && facts->is_probed && facts->steps >= kProbeSteps && stepped >= kProbeSeconds;
    is_done |= steps && seconds > start_seconds_ + std::max(kMostProbeSeconds,
                                                            kProbeShare * request_.budget_seconds);
    if (is_done) break;
    if (end && end->exit_code != 0) throw program.failure(*end);
    if (end && steps) {
      // With {steps} the run ended because the probe asks for few.
      if (request_.target.command.has_steps()) break;
      whole_steps_ = facts->steps;
      whole_seconds_ = seconds;
      break;
    }
    if (end || (!steps && seconds > std::max(kStartSeconds, kProbeShare * request_.budget_seconds)))
      throw ForeignFailed(program.why_no_step());
  }
  facts_ = *facts;
  first_step_seconds_ = start_seconds_;
}

void ForeignOptimizer::note_whole_run(const ForeignRunner& runner) {
  whole_steps_ = std::max(whole_steps_, runner.whole_steps());
}

// A guard of the first change has three runs at least, two of them at a time.
ProgramTimes ForeignOptimizer::probed_times() const {
  const double step = std::max(1e-4, facts_.step_seconds);
  const ForeignRunnerOptions runner;
  ProgramTimes times{.step_seconds = step,
                     .first_step_seconds = first_step_seconds_,
                     .whole_seconds = whole_seconds_,
                     .whole_steps = whole_steps_,
                     .has_steps = request_.target.command.has_steps()};
  times.costs.start_seconds = start_seconds_;
  times.costs.block_seconds = std::max(kForeignBlockSeconds, step);
  if (whole_steps_ > 0) {
    times.costs.run_seconds = timed_run_seconds(whole_steps_, step);
    times.costs.start_seconds += static_cast<double>(whole_steps_) * step - times.costs.run_seconds;
  } else {
    times.costs.start_seconds +=
        std::max(runner.warm_seconds, static_cast<double>(runner.warm_steps) * step);
  }
  const double block = std::max(kBaselineSeconds, step);
  const double starts =
      times.costs.run_seconds > 0 ? std::ceil(block / times.costs.run_seconds) : 1;
  times.before_seconds = starts * times.costs.start_seconds + block;
  times.guard_seconds = 2 * (start_seconds_ + static_cast<double>(kForeignSteps) * step);
  return times;
}

ProgramTimes ForeignOptimizer::measured_times() {
  note_whole_run(*best_);
  ProgramTimes times = probed_times();
  times.step_seconds = step_seconds_;
  times.costs = timing_costs(*best_, step_seconds_);
  times.before_seconds = 0;
  times.guard_seconds = guard_seconds();
  if (whole_steps_ > 0 && times.whole_seconds == 0)
    times.whole_seconds =
        first_step_seconds_ + static_cast<double>(whole_steps_) * times.step_seconds;
  return times;
}

void ForeignOptimizer::check_budget(const ProgramTimes& times) {
  const auto trouble = budget_trouble(times, request_.budget_seconds, seconds_left());
  if (!trouble) return;
  if (trouble->is_hopeless && !request_.is_dry)
    throw UserError(
        fmt::format("'{}' cannot be tuned: {}", request_.target.command.text(), trouble->text),
        trouble->fix);
  // The note is written once, when the baseline is measured.
  if (best_ == nullptr) return;
  const std::string text = fmt::format("{}; {}", trouble->text, trouble->fix);
  observer_.on_message(text);
  result_.summary.notes.push_back(text);
}

void ForeignOptimizer::measure_baseline() {
  best_ = open({}, seconds_left());
  start_seconds_ = std::max(start_seconds_, best_->open_seconds());
  const double expected = std::max(1e-4, facts_.step_seconds);
  const auto steps = std::max<int64_t>(
      best_->least_steps(), static_cast<int64_t>(std::ceil(kBaselineSeconds / expected)));
  const Block block = best_->run(steps);
  step_seconds_ = block.seconds / static_cast<double>(steps);
  wait_share_ = block.seconds > 0 ? std::min(1.0, block.waited_seconds / block.seconds) : 0;
  VariantSpeed& speed = result_.summary.baseline;
  speed.step_ms = 1e3 * step_seconds_;
  speed.loader_wait_share = wait_share_;
  speed.step_samples = batch_of(facts_);
  speed.samples_per_s = speed.step_samples / std::max(step_seconds_, 1e-12);
  result_.summary.result = speed;
}

// What the user is told of the program before anything is tried.
void ForeignOptimizer::tell_parts() {
  OptimizeSummary& summary = result_.summary;
  summary.parts.push_back(fmt::format("a step takes {:.3g} ms; {:.0f} % of it waits for data",
                                      1e3 * step_seconds_,
                                      100 * wait_share_));
  summary.parts.push_back(fmt::format(
      "steps are {}; torch {} computes with {} threads",
      facts_.step_source == "module" ? "calls of the outermost module" : "those of the optimizer",
      facts_.torch,
      facts_.threads));
  summary.parts.push_back(fmt::format(
      "it is started anew for each trial, which takes {:.1f} s until it steps", start_seconds_));
  for (const std::string& part : summary.parts) observer_.on_message(part);
}

void ForeignOptimizer::find_and_prove() {
  probe();
  check_budget(probed_times());
  measure_baseline();
  tell_parts();
  check_budget(measured_times());
  search();
  if (!request_.is_dry && !best_recipe_.empty()) prove();
}

OptimizeResult ForeignOptimizer::run() {
  OptimizeSummary& summary = result_.summary;
  fingerprint_ = machine_fingerprint("cpu");
  summary.target = script_of(request_.target.command.words());
  summary.subject = "program";
  summary.recipe_use = "ridge run --recipe";
  summary.recipe_rest = " -- " + request_.target.command.text();
  summary.doctor_use = "ridge doctor" + summary.recipe_rest;
  summary.machine = fingerprint_;
  summary.budget_s = request_.budget_seconds;
  summary.energy_problem = "blocks of programs of others are not weighed";
  summary.guard = {.verdict = "not_needed", .text = "no change was kept"};
  summary.is_dry = request_.is_dry;
  try {
    find_and_prove();
  } catch (const TrialStopped& stop) {
    summary.notes.push_back(fmt::format("ended early: {}", stop.what()));
  } catch (const ForeignFailed& failure) {
    throw UserError(
        fmt::format("'{}' cannot be tuned: {}", request_.target.command.text(), failure.what()));
  }
  best_.reset();
  summary.seconds = static_cast<double>(now_ns() - start_) * 1e-9;
  return std::move(result_);
}

OptimizeResult optimize_program(const ForeignOptimizeRequest& request, OptimizeObserver& observer) {
  return ForeignOptimizer(request, observer).run();
}

}  // namespace ridge
