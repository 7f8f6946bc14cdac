// How much of a budget timing takes, and how much of it belongs to the final proof: pure functions
// of what was measured. The tuning loop reserves the proof's time by them before it tries
// anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/proof/judge.h"
#include "ridge/proof/trial.h"

namespace ridge {

/// The final proof has at least this many pairs.
inline constexpr int64_t kProofPairs = 12;

/// No trial has a verdict for a gain after fewer pairs: two set the scale, and the bets have to win
/// eight times before the interval excludes "no gain".
inline constexpr int64_t kVerdictPairs = 10;

/// The costs of timing two variants in turn.
struct TimingCosts {
  double start_seconds = 0;  ///< Seconds from the start of a variant until it can be timed.
  double block_seconds = 0;  ///< Seconds of one block of the slower variant.
  /// Seconds for which a variant can be timed before its program ends by itself and has to be
  /// started again; 0: it does not end.
  double run_seconds = 0;
};

/// Seconds that `pairs` pairs take where `starts` of the two variants are not started yet.
double timing_seconds(const TimingCosts& costs, int64_t pairs, int64_t starts);

/// Seconds to reserve for a proof of `pairs` pairs, whose blocks take `least_seconds` at least:
/// both variants are started for it. Includes a margin for estimates that are too low.
double proof_seconds(const TimingCosts& costs, int64_t pairs, double least_seconds = 0);

/// Pairs that the proof of a gain takes with a probability of 0.9. `gain` is the logarithm of the
/// speedup of all that was kept, `noise` the deviation of a pair's logarithm; twice the pairs that
/// the last kept trial took are enough. At least kProofPairs.
int64_t proof_pairs(const JudgeOptions& judge, double gain, double noise, int64_t trial_pairs);

/// The standard deviation of a pair's logarithm, as the judged pairs of a trial scatter; nothing
/// where there are fewer than three of them.
std::optional<double> pair_noise(const TrialResult& trial);

/// The reason of trials that are not begun, after kNoTime: "a trial takes about 14 s, and of the 60
/// s that are left 52 s are reserved for the proof".
std::string no_time_text(double trial_seconds, double proof_seconds, double seconds_left);

/// A proof between two of its pairs.
struct ProofProgress {
  double seconds_left = 0;     ///< Seconds until it has to end.
  double pairs_seconds = 0;    ///< Seconds that the pairs so far took.
  double restart_seconds = 0;  ///< Seconds in which both variants started.
  int64_t pairs = 0;           ///< Pairs so far.
  int64_t least_pairs = 0;     ///< Pairs that it should have.
};

/// Whether both variants can be started again without taking the time of the pairs that are
/// missing.
bool may_restart(const ProofProgress& progress);

/// A trial or a proof that ended without a verdict.
struct OpenTrial {
  int64_t pairs = 0;        ///< Pairs that were judged.
  double gain = 0;          ///< Logarithm of the speedup that they show, or that is expected.
  double noise = 0;         ///< Standard deviation of a pair's logarithm.
  double pair_seconds = 0;  ///< Seconds that one pair takes.
  double more_seconds = 0;  ///< Seconds that are missing besides, such as those of a proof.
};

/// The budget with which it would have had a verdict: "at 1.32 times a verdict takes about 11 pairs
/// of 5.2 s: give --budget 230", or that more time would show no gain.
std::string verdict_budget_text(const OpenTrial& open,
                                const JudgeOptions& judge,
                                double budget_seconds);

/// The times of a program that are known before anything is tried.
struct ProgramTimes {
  TimingCosts costs{};
  double step_seconds = 0;
  double before_seconds = 0;      ///< Seconds that the loop still takes before its first trial.
  double guard_seconds = 0;       ///< Seconds that the guard of one change takes.
  double first_step_seconds = 0;  ///< Seconds from the start of a run to its first step.
  double whole_seconds = 0;       ///< Seconds of a run from its start to its own end; 0: not seen.
  int64_t whole_steps = 0;        ///< Steps of such a run; 0: no run has ended by itself.
  bool has_steps = false;         ///< The command has {steps} in it.
};

/// Why a budget is too small for the program, or most of it would go into starts.
struct BudgetTrouble {
  bool is_hopeless = false;  ///< Not even one trial and its proof fit.
  std::string text{}, fix{};
};

/// Nothing where a trial, its guard and the proof fit into `seconds_left` without most of that
/// being spent on starting the program again and again.
std::optional<BudgetTrouble> budget_trouble(const ProgramTimes& times,
                                            double budget_seconds,
                                            double seconds_left);

}  // namespace ridge
