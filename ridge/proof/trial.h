// A trial: two variants of a program, timed in turn until a verdict stands.
//
// Blocks of steps are taken as ABBA or BAAB, as a coin says, so that what drifts meets both; the
// verdict is the judge's (judge.h), which no noise can win. A loader is full when a block begins
// and when it ends, so what lay ready gains nothing: a block makes as many batches as it takes.
// Where a step of one variant does more work than one of the other, such as more samples, that one
// runs fewer: blocks of a pair do the same work, and what is compared is the time that it takes.
// Whoever runs the steps is a Runner, so a trial is the same for a process of ours, a foreign
// command, and a series made for a test.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ridge/proof/judge.h"

namespace ridge {

/// One stretch of steps.
struct Block {
  double seconds = 0;         ///< Wall time of its steps, and of bringing the loader back to full.
  double waited_seconds = 0;  ///< The part of `seconds` in which a step waited for data.
  double stolen_seconds = 0;  ///< CPU time that other guests took from this machine meanwhile.
  int64_t switches = 0;       ///< Involuntary context switches of the process.

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("seconds", self.seconds);
    visit("waited_seconds", self.waited_seconds);
    visit("stolen_seconds", self.stolen_seconds);
    visit("switches", self.switches);
  }
};

/// A stop was asked for, or the deadline is over.
class TrialStopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One variant, ready to run. What run() throws ends the trial, but for a TrialStopped after the
/// first pair: what was judged until then stands.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;
  virtual Block run(int64_t steps) = 0;
  /// Runs steps that no comparison times, before a block.
  virtual void warm(int64_t steps) { run(steps); }
  /// Called before a comparison: where steps differ in work, they come from their beginning again,
  /// so that both sides meet the same ones in the same order.
  virtual void rewind() {}
};

/// A step shorter than this is slowed noticeably by the caches that another process left: one step
/// runs before each block, and is not timed.
inline constexpr double kWarmStepSeconds = 0.05;

struct TrialOptions {
  JudgeOptions judge{};
  uint64_t seed = 0;  ///< Seed of the coin.
  /// Seconds of a block, counted in steps of the slower variant. Other processes take time in
  /// bursts: of many short pairs most are spared, of few long ones none.
  double block_seconds = 0.02;
  int64_t least_steps = 1;  ///< Least steps of a block.
  double work = 1;          ///< Samples a step of `after` over those a step of `before`.
  int64_t least_pairs = 0;  ///< Pairs that are judged even when the verdict stands earlier.
  /// Time of all blocks together, even when the verdict stands earlier.
  double least_seconds = 0;
  int64_t most_pairs = 200;
  /// A pair of which others stole more than this share of the CPU time is not judged, or, where
  /// they steal more than that all of the time, one far above the usual.
  double stolen_share = 0.05;
  int cpus = 1;  ///< CPUs whose time can be stolen.
  /// Asked before each pair: true ends the trial with what there is.
  std::function<bool()> should_stop = nullptr;
  int64_t until_ns = 0;  ///< When should_stop says so at the latest, by now_ns(); 0: not known.
};

/// On this machine's CPUs, ending with stop_requested() and before a pair that would begin after
/// `until_ns` by now_ns().
TrialOptions trial_until(int64_t until_ns, uint64_t seed);

/// Seconds of a block of a variant whose steps take `step_seconds` each, with the step that warms
/// up a short one.
double block_seconds(const TrialOptions& options, double step_seconds);

/// Two blocks of each variant, in their order.
struct Pair {
  bool before_outside = false;  ///< ABBA, A the variant before; else BAAB.
  bool dropped = false;         ///< Too much time was stolen: not judged.
  double work = 1;              ///< Work of a block after over that of a block before.
  Block before[2], after[2];
  /// log(time before / time after), both for the same work.
  double log_ratio() const;
};

struct TrialResult {
  Verdict verdict = Verdict::kOpen;
  int64_t steps = 0;        ///< Steps of a block before.
  int64_t after_steps = 0;  ///< Steps of a block after.
  /// Work of a block after over that of one before: 1, but for rounding.
  double work = 1;
  std::vector<Pair> pairs;
  int64_t dropped = 0;
  double gain = 0;  ///< Median of the log ratios that were judged.
  /// Interval of the gain, with 95 % confidence whenever the trial ended.
  std::optional<ConfidenceInterval> interval;
  /// Median seconds of a step.
  double before_seconds = 0, after_seconds = 0;
};

/// Runs blocks of both until the verdict stands and, where it is kFaster, an interval of gains
/// alone says how much; or until most_pairs are judged or should_stop says so. The first blocks of
/// each only find out how many steps a block has to have.
TrialResult compare(Runner& before, Runner& after, const TrialOptions& options);

}  // namespace ridge
