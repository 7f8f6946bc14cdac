#include "ridge/tune/foreign_optimize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ridge/base/clock.h"
#include "ridge/base/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/machine.h"
#include "ridge/io/checksum.h"
#include "ridge/train/stop.h"
#include "ridge/tune/foreign_optimizer.h"
#include "ridge/tune/record_trial.h"

namespace ridge {
namespace {

// Shares of the budget.
constexpr double kSearchShare = 0.75;
constexpr double kProbeShare = 0.2;

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

// Two are started, and timed.
double ForeignOptimizer::proof_seconds() const {
  return std::max((1 - kSearchShare) * request_.budget_seconds, 4 * start_seconds_);
}

double ForeignOptimizer::search_seconds_left() const { return seconds_left() - proof_seconds(); }

std::unique_ptr<ForeignRunner> ForeignOptimizer::open(const ForeignRecipe& recipe) const {
  return std::make_unique<ForeignRunner>(
      request_.target, recipe, ForeignRunnerOptions{.deadline_ns = deadline(seconds_left())});
}

TrialOptions ForeignOptimizer::trial_options(const ForeignRunner& before,
                                             const ForeignRunner& after,
                                             double most_seconds) {
  TrialOptions options = foreign_trial_options(deadline(std::min(most_seconds, seconds_left())),
                                               request_.seed + static_cast<uint64_t>(timed_),
                                               before,
                                               after);
  options.judge.worth = std::log(kWorth);
  options.judge.hope = std::log(kHope);
  return options;
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
  const int64_t begun = now_ns();
  std::optional<attach::ProcessFacts> facts;
  for (bool is_done = false; !is_done;) {
    if (stop_requested()) throw TrialStopped("stopped before the program was known");
    const auto end = program.program().wait(kPollMilliseconds);
    facts = program.facts();
    const double seconds = static_cast<double>(now_ns() - begun) * 1e-9;
    const bool steps = facts && facts->steps > 0;
    if (steps && start_seconds_ == 0) start_seconds_ = seconds;
    const double stepped =
        steps ? static_cast<double>(facts->last_step_wall_ns - facts->first_step_wall_ns) * 1e-9
              : 0;
    is_done = steps && facts->is_probed && facts->steps >= kProbeSteps && stepped >= kProbeSeconds;
    is_done |= steps && seconds > start_seconds_ + std::max(kMostProbeSeconds,
                                                            kProbeShare * request_.budget_seconds);
    if (is_done) break;
    if (end && end->exit_code != 0) throw program.failure(*end);
    if (end && steps) break;
    if (end || (!steps && seconds > std::max(kStartSeconds, kProbeShare * request_.budget_seconds)))
      throw ForeignFailed(program.why_no_step());
  }
  facts_ = *facts;
}

void ForeignOptimizer::measure_baseline() {
  best_ = open({});
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
  measure_baseline();
  tell_parts();
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
