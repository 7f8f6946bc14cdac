// The record of a trial: the belief, the measurement and the outcome. It holds everything that the
// verdict was made from, so that the verdict can be recomputed.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/proof/judge.h"

namespace ridge {

enum class TrialVerdict : uint8_t {
  kKept,         ///< Faster, and the guard had nothing against it.
  kNotFaster,    ///< Not by as much as would be worth having.
  kOpen,         ///< Time or pairs ran out before a verdict stood.
  kGuardFailed,  ///< The numbers got worse.
  kFailed,       ///< It crashed, hung, or ran out of memory.
  kRefused,      ///< Predicted to lose, or impossible here.
  kNotTried,     ///< Its ceiling is too low, or nothing is to be changed.
  kUnguarded,    ///< Faster, but the time ended before the guard had a verdict.
  kDropped,      ///< Kept once, and no longer worth having beside what was kept after it.
};
constexpr std::string_view names_of(TrialVerdict) {
  return "kept|not_faster|open|guard_failed|failed|refused|not_tried|unguarded|dropped";
}

/// No ceiling is above this: a part of a step that takes nearly all of it bounds nothing.
inline constexpr double kNoCeiling = 100;

/// A change that could gain less, even if its part of a step cost nothing, is not tried.
inline constexpr double kLeastCeiling = 1.02;

/// Reason of TrialVerdict::kNotTried of a change to a program whose ceiling is below that.
inline constexpr std::string_view kUnsupported =
    "no finding, wait or operator of the recorded steps supports it";

/// Reasons of TrialVerdict::kNotTried that say nothing about the change.
inline constexpr std::string_view kNoTime = "the budget has no time left for it";
inline constexpr std::string_view kWasStopped = "stopped by a signal";

/// Bounds of what a record holds: factors of speed, seconds, and numbers of steps and trials.
inline constexpr double kHighestSpeed = 1e30, kMostSeconds = 1e12;
inline constexpr int64_t kHighestCount = std::numeric_limits<int64_t>::max();

/// Factors of speed: 2 takes half the time, 1 is no gain.
struct SpeedRange {
  double low = 1, high = 1;

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("lo", self.low, 0.0, kHighestSpeed);
    visit("hi", self.high, 0.0, kHighestSpeed);
  }
};

struct SpeedEstimate {
  double low = 1, mid = 1, high = 1;
  double confidence = 0.95;

  static void fields(auto& self, auto&& visit) {
    visit("lo", self.low, 0.0, kHighestSpeed);
    visit("mid", self.mid, 0.0, kHighestSpeed);
    visit("hi", self.high, 0.0, kHighestSpeed);
    visit("confidence", self.confidence, 0.0, 1.0);
  }
};

/// Four blocks in the order in which they ran.
struct PairRecord {
  bool before_outside = false;      ///< ABBA, A the variant before; else BAAB.
  bool dropped = false;             ///< Not judged.
  std::array<double, 4> seconds{};  ///< Above 0.
  double log_ratio = 0;             ///< The judge's input, also where the pair was dropped.

  static void fields(auto& self, auto&& visit) {
    visit.either("order", self.before_outside, "ABBA", "BAAB");
    visit("dropped", self.dropped);
    visit("seconds", self.seconds);
    visit("log_ratio", self.log_ratio, -kMostSeconds, kMostSeconds);
  }
};

/// log(time before / time after) of the blocks, for the same work; `work` is that of a block after
/// over that of one before.
double log_ratio_of(const PairRecord& pair, double work = 1);

/// Name of the technique of the record that holds the final proof: original against result.
inline constexpr std::string_view kProofTechnique = "proof";

/// Opens the name of a record that takes a kept change away again: "without loader.workers". Its
/// trial is of the recipe without it (before) against the recipe with it (after).
inline constexpr std::string_view kWithout = "without ";

struct TrialRecord {
  int64_t number = 0;     ///< From 1, in the order of the loop.
  std::string technique;  ///< "loader.workers"
  std::string change;     ///< "loader.workers 0 -> 2"; empty where nothing was to be changed.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  std::string hypothesis;
  std::optional<SpeedRange> predicted;
  std::optional<double> ceiling;  ///< Most that it could gain, where that was measured.
  std::optional<SpeedEstimate> measured;
  int64_t block_steps = 0;        ///< Steps of a block before.
  int64_t after_block_steps = 0;  ///< Steps of a block after.
  double work = 1;  ///< Samples of a block after over those of one before; 1 but for rounding.
  std::vector<PairRecord> pairs;
  JudgeOptions judge{};  ///< Options of the judge: the gains that it bet against, and its errors.
  TrialVerdict verdict = TrialVerdict::kNotTried;
  std::string reason;  ///< Explains the verdict in words.
  std::string guard;   ///< The guard's result in one line; empty: it was not asked.
  /// TOML of the recipes before and after the change; empty: the configuration as it is.
  std::string recipe_before, recipe;
  std::string recipe_hash;  ///< recipe_hash() of `recipe`.
  std::string plan_hash, machine;
  std::string started;  ///< "2026-11-21T20:15:03Z"
  double seconds = 0;   ///< Time that the trial took, guard included.

  int64_t judged_pairs() const;
  int64_t dropped_pairs() const;
  /// The factor of speed that was measured; without an interval the median of the judged pairs,
  /// where there are three. Nothing where fewer ran.
  std::optional<double> gain() const;
  void conclude(TrialVerdict its_verdict, std::string its_reason) {
    verdict = its_verdict;
    reason = std::move(its_reason);
  }

  /// All but those of block_fields().
  static void fields(auto& self, auto&& visit) {
    visit("number", self.number, int64_t{1}, kHighestCount);
    visit("technique", self.technique);
    visit("change", self.change);
    visit("class", self.semantic_class);
    visit("hypothesis", self.hypothesis);
    visit("predicted", self.predicted);
    visit("ceiling", self.ceiling, 0.0, kHighestSpeed);
    visit("measured", self.measured);
    visit.count("pairs", self.judged_pairs());
    visit.count("dropped", self.dropped_pairs());
    visit("verdict", self.verdict);
    visit("reason", self.reason);
    visit("guard", self.guard);
    visit("recipe_before", self.recipe_before);
    visit("recipe", self.recipe);
    visit("recipe_hash", self.recipe_hash);
    visit("plan_hash", self.plan_hash);
    visit("machine", self.machine);
    visit("started", self.started);
    visit("seconds", self.seconds, 0.0, kMostSeconds);
  }
  /// The fields that the verdict was made from.
  static void block_fields(auto& self, auto&& visit) {
    constexpr double kLeastWork = 1e-9;
    visit("block_steps", self.block_steps, int64_t{0}, kHighestCount);
    visit.added("after_block_steps", self.after_block_steps, int64_t{0}, kHighestCount);
    visit.added("work", self.work, kLeastWork, 1 / kLeastWork);
    visit("judge", self.judge);
    visit("blocks", self.pairs);
  }
};

/// Whether a record is of a technique, not of the proof or of what was taken away again.
bool is_of_technique(const TrialRecord& record);

/// The steps from the configuration to the recipe, in their order: what was timed and kept, and not
/// dropped later. They point into `trials`.
std::vector<const TrialRecord*> kept_steps(std::span<const TrialRecord> trials);

/// The judge after all pairs of the record that count, rebuilt from what was measured.
Judge judge_again(const TrialRecord& record);

}  // namespace ridge
