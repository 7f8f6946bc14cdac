#include "ridge/proof/proof_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/base/stats.h"
#include "ridge/proof/trial_record.h"

namespace ridge {
namespace {

// A pair has two blocks of each of two variants.
constexpr double kBlocksOfPair = 4;

// A proof may take this many times as long as the costs say, and still end with a verdict.
constexpr double kMargin = 1.25;

constexpr double kPower = 0.9;        // the probability of a verdict
constexpr double kLeastNoise = 1e-4;  // pairs do not scatter less
constexpr int64_t kMostPairs = 200;   // as TrialOptions::most_pairs

// A budget that is advised is this many times the estimate, so that it is not refused for a start
// that takes longer the next time.
constexpr double kSlack = 1.1;

// The user is warned when more than this share of the needed time goes into starts.
constexpr double kMostlyStarts = 0.5;

// A budget of more than this many times the given one is not advised.
constexpr double kMostTimes = 20;

// Both variants together are started again so often within so many pairs, as their runs end.
double starts_again(const TimingCosts& costs, int64_t pairs) {
  if (!(costs.run_seconds > 0)) return 0;
  const double timed = kBlocksOfPair / 2 * costs.block_seconds * static_cast<double>(pairs + 1);
  return 2 * (std::ceil(timed / costs.run_seconds) - 1);
}

// Rounds up to two digits: 221 to 230.
double rounded_up(double value) {
  if (!(value > 0)) return 0;
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(value)) - 1));
  return unit * std::ceil(value / unit);
}

// Seconds of all that has to be done before a first gain can be claimed.
double needed_seconds(const ProgramTimes& times, const TimingCosts& costs) {
  return times.before_seconds + timing_seconds(costs, kVerdictPairs, 1) + times.guard_seconds +
         proof_seconds(costs, kProofPairs);
}

double budget_for(double needed, double budget_seconds, double seconds_left) {
  return rounded_up(kSlack * (budget_seconds - seconds_left + needed));
}

// Runs are long enough where none has to be started again within a proof.
BudgetTrouble short_runs(const ProgramTimes& times, double budget_seconds, double seconds_left) {
  TimingCosts endless = times.costs;
  endless.run_seconds = 0;
  const double needed = needed_seconds(times, times.costs),
               unended = needed_seconds(times, endless);
  const double untimed =
      static_cast<double>(times.whole_steps) * times.step_seconds - times.costs.run_seconds;
  const double timed =
      kBlocksOfPair / 2 * times.costs.block_seconds * static_cast<double>(kProofPairs + 1);
  const double steps =
      rounded_up((std::max(1.0, untimed) + timed) / std::max(times.step_seconds, 1e-6));
  const double longer = std::max(2.0, std::ceil(steps / static_cast<double>(times.whole_steps)));
  BudgetTrouble trouble{.is_hopeless = needed > seconds_left};
  trouble.text = fmt::format(
      "{}: a run takes {:.1f} s, {:.1f} s of it until the first step, and makes {} steps of {:.3g} "
      "ms; one trial with its guard and the proof take about {:.0f} runs, and {:.0f} fit into the "
      "{:.0f} s that are left",
      trouble.is_hopeless
          ? fmt::format("its runs are too short for a budget of {:.0f} s", budget_seconds)
          : "its runs are short, so that most of the budget goes into starting it again",
      times.whole_seconds,
      times.first_step_seconds,
      times.whole_steps,
      1e3 * times.step_seconds,
      std::ceil(needed / std::max(times.whole_seconds, 1e-3)),
      std::floor(seconds_left / std::max(times.whole_seconds, 1e-3)),
      seconds_left);
  trouble.fix = fmt::format(
      "let a run make {:.0f} steps or more, such as {:.0f} times as many epochs{}",
      steps,
      longer,
      times.has_steps ? ""
                      : ", or write {steps} into the command where it takes a number of steps");
  const double budget = budget_for(needed, budget_seconds, seconds_left);
  if (unended > seconds_left)
    trouble.fix += fmt::format(", and give --budget {:.0f}",
                               budget_for(unended, budget_seconds, seconds_left));
  else if (trouble.is_hopeless && budget <= kMostTimes * budget_seconds)
    trouble.fix += fmt::format("; or give --budget {:.0f}", budget);
  return trouble;
}

}  // namespace

double timing_seconds(const TimingCosts& costs, int64_t pairs, int64_t starts) {
  // The first blocks, about a pair of them, only find out how many steps a block has.
  const double blocks = kBlocksOfPair * costs.block_seconds * static_cast<double>(pairs + 1);
  return (static_cast<double>(starts) + starts_again(costs, pairs)) * costs.start_seconds + blocks;
}

double proof_seconds(const TimingCosts& costs, int64_t pairs, double least_seconds) {
  const double pair = kBlocksOfPair * costs.block_seconds;
  if (pair > 0) pairs = std::max(pairs, static_cast<int64_t>(std::ceil(least_seconds / pair)));
  return kMargin * timing_seconds(costs, pairs, 2);
}

int64_t proof_pairs(const JudgeOptions& judge, double gain, double noise, int64_t trial_pairs) {
  const int64_t most = std::clamp(2 * trial_pairs, kProofPairs, kMostPairs);
  return std::max(kProofPairs,
                  pairs_for_power(judge, gain, std::max(noise, kLeastNoise), kPower, most));
}

std::optional<double> pair_noise(const TrialResult& trial) {
  std::vector<double> log_ratios;
  for (const Pair& pair : trial.pairs)
    if (!pair.dropped) log_ratios.push_back(pair.log_ratio());
  if (log_ratios.size() < 3) return std::nullopt;
  return 1.4826 * median_absolute_deviation(log_ratios);
}

std::string no_time_text(double trial_seconds, double proof_seconds, double seconds_left) {
  return fmt::format(
      "{}: a trial takes about {:.0f} s, and of the {:.0f} s that are left {:.0f} s are reserved "
      "for the proof",
      kNoTime,
      trial_seconds,
      std::max(0.0, seconds_left),
      proof_seconds);
}

bool may_restart(const ProofProgress& progress) {
  const double pair =
      progress.pairs_seconds / static_cast<double>(std::max<int64_t>(1, progress.pairs));
  const auto missing =
      static_cast<double>(std::max<int64_t>(1, progress.least_pairs - progress.pairs));
  return progress.seconds_left > kMargin * (progress.restart_seconds + missing * pair);
}

std::string verdict_budget_text(const OpenTrial& open,
                                const JudgeOptions& judge,
                                double budget_seconds) {
  const int64_t pairs = std::max(
      kVerdictPairs,
      pairs_for_power(judge, open.gain, std::max(open.noise, kLeastNoise), kPower, kMostPairs));
  if (pairs >= kMostPairs)
    return fmt::format("at {:.3f} times, as its pairs scatter, even {} pairs would not do",
                       std::exp(open.gain),
                       kMostPairs);
  const double missing =
      kMargin * static_cast<double>(std::max<int64_t>(1, pairs - open.pairs)) * open.pair_seconds;
  return fmt::format(
      "at {:.2f} times a verdict takes about {} pairs of {:.2g} s: give --budget {:.0f}",
      std::exp(open.gain),
      std::max(pairs, open.pairs + 1),
      open.pair_seconds,
      rounded_up(budget_seconds + missing + open.more_seconds));
}

std::optional<BudgetTrouble> budget_trouble(const ProgramTimes& times,
                                            double budget_seconds,
                                            double seconds_left) {
  const double needed = needed_seconds(times, times.costs);
  TimingCosts endless = times.costs;
  endless.run_seconds = 0;
  const double restarts = needed - needed_seconds(times, endless);
  if (restarts > kMostlyStarts * needed) return short_runs(times, budget_seconds, seconds_left);
  if (needed <= seconds_left) return std::nullopt;
  return BudgetTrouble{
      .is_hopeless = true,
      .text = fmt::format(
          "a budget of {:.0f} s is too small: the program takes {:.1f} s from its start until it "
          "can be timed and {:.2g} s for a block of steps, so that one trial with its guard and "
          "the "
          "proof take about {:.0f} s, and {:.0f} s are left",
          budget_seconds,
          times.costs.start_seconds,
          times.costs.block_seconds,
          needed,
          std::max(0.0, seconds_left)),
      .fix = fmt::format("give --budget {:.0f}", budget_for(needed, budget_seconds, seconds_left))};
}

}  // namespace ridge
