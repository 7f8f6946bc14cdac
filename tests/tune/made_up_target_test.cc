// A target without a process and without a clock goes through the whole tuning loop: its variants
// return seconds that are made up at once, so that what becomes of its changes is the same on every
// machine.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "ridge/base/clock.h"
#include "ridge/proof/ledger/ledger.h"
#include "ridge/proof/ledger/ledger_text.h"
#include "ridge/tune/replay.h"

namespace ridge {
namespace {

// Names of changes, in the order in which they were kept.
using Names = std::vector<std::string>;

// A program of 10 ms a step. `early` gains a fifth until `late` is there, which makes it useless.
double step_seconds(const std::string& recipe) {
  const auto has = [&](const char* name) { return recipe.find(name) != std::string::npos; };
  double seconds = 0.01;
  if (has("early") && !has("late")) seconds /= 1.2;
  if (has("late")) seconds /= 2;
  if (has("steady")) seconds /= 1.3;
  if (has("wrong") || has("costly")) seconds /= 3;
  return seconds;
}

class MadeUpVariant final : public TunedVariant {
 public:
  MadeUpVariant(std::string recipe, uint64_t seed) : recipe_(std::move(recipe)), generator_(seed) {}
  Block run(int64_t steps) override {
    std::normal_distribution<double> noise(1, 0.01);
    return {.seconds = static_cast<double>(steps) * step_seconds(recipe_) * noise(generator_)};
  }
  double open_seconds() const override { return 0.1; }
  const std::string& recipe() const { return recipe_; }

 private:
  std::string recipe_;
  std::mt19937_64 generator_;
};

class MadeUpTarget : public Target {
 public:
  std::unique_ptr<TunedVariant> start(const LoopView& loop) override {
    loop.summary.target = "made up";
    return open({}, 0, 0);
  }
  std::unique_ptr<TunedVariant> open(const std::string& recipe, int64_t, int64_t) override {
    if (recipe.find("crash") != std::string::npos) throw VariantFailed("it crashed");
    return std::make_unique<MadeUpVariant>(recipe, ++opened_);
  }
  std::string cannot_run() const override { return "it cannot be run"; }
  Names techniques() const override {
    return {"early", "wrong", "costly", "crash", "idle", "late", "steady"};
  }
  std::vector<Change> changes(std::span<const Change> /*kept*/, TunedVariant& /*best*/) override {
    std::vector<Change> changes;
    for (const std::string& name : techniques())
      changes.push_back({.technique = name, .key = name, .text = name + " 0 -> 1"});
    return changes;
  }
  RecipeText recipe(std::span<const Change> kept, const RecipeClaim* proven) override {
    std::string text;
    for (const Change& change : kept) text += change.technique + "\n";
    return {text + (proven != nullptr ? "# " + proven->claim : ""), "hash of " + text};
  }
  bool is_sound(const Change&, VariantPair, TrialRecord&) override { return true; }
  TrialOptions trial_options(VariantPair, int64_t until_ns) const override {
    return trial_until(until_ns, 0);
  }
  double step_seconds() const override { return 0.01; }
  double guard_seconds(SemanticClass) const override { return 1; }
  GuardOutcome guard(const Change& change, VariantPair, int64_t) override {
    return {.passed = change.technique != "wrong", .text = "outputs were compared"};
  }
  std::string not_paid(VariantPair pair, const TrialResult&) const override {
    const auto& after = static_cast<const MadeUpVariant&>(pair.after);
    return after.recipe().find("costly") != std::string::npos ? "it costs too much once" : "";
  }
  void keep(const Change&, TunedVariant&, const TrialResult&) override {}
  GuardOutcome guard_rest(RestClasses, VariantPair, int64_t) override {
    return {.passed = true, .text = "outputs of the rest were compared"};
  }
  TrialResult prove(VariantPair pair, const ProofOptions& proof) override {
    return compare(pair.before, pair.after, proof.trial);
  }

 private:
  uint64_t opened_ = 0;
};

// Two changes whose gains are predicted: a small one that costs nothing but its pairs, and a large
// one behind a guard of ten seconds. The machine's noise is measured at the start.
class NoisyTarget final : public MadeUpTarget {
 public:
  explicit NoisyTarget(double noise) : noise_(noise) {}
  std::unique_ptr<TunedVariant> start(const LoopView& loop) override {
    loop.noise = noise_;
    return MadeUpTarget::start(loop);
  }
  Names techniques() const override { return {"late", "steady"}; }
  std::vector<Change> changes(std::span<const Change> kept, TunedVariant& best) override {
    std::vector<Change> changes = MadeUpTarget::changes(kept, best);
    changes[0].semantic_class = SemanticClass::kPrecision;
    changes[0].predicted = SpeedRange{2, 2};
    changes[1].predicted = SpeedRange{1.2, 1.2};
    return changes;
  }
  double guard_seconds(SemanticClass semantic_class) const override {
    return semantic_class == SemanticClass::kPrecision ? 10 : 0;
  }

 private:
  double noise_;
};

// Gains as other subjects let expect them: wrongly of the change that is worth most.
class RoughTarget final : public MadeUpTarget {
 public:
  Names techniques() const override { return {"late", "steady"}; }
  std::vector<Change> changes(std::span<const Change> kept, TunedVariant& best) override {
    std::vector<Change> changes = MadeUpTarget::changes(kept, best);
    for (Change& change : changes) change.is_rough = true;
    changes[0].predicted = SpeedRange{0.9, 1.0};
    changes[1].predicted = SpeedRange{1.1, 1.5};
    return changes;
  }
};

// Blocks of 100 s, by its account: trials take 4,400 s, the proof 6,500 s. `late` comes first by
// its prediction, and what is left then is the time of trials without it and of the proof.
class LongTarget final : public MadeUpTarget {
 public:
  Names techniques() const override { return {"early", "late", "steady"}; }
  std::vector<Change> changes(std::span<const Change> kept, TunedVariant& best) override {
    std::vector<Change> changes = MadeUpTarget::changes(kept, best);
    constexpr double kGains[] = {1.05, 2, 1.2};
    for (size_t i = 0; i < changes.size(); ++i) {
      changes[i].predicted = SpeedRange{kGains[i], kGains[i]};
      changes[i].least_steps = changes[i].technique == long_blocks ? 1'000'000 : 1;
    }
    return changes;
  }
  TrialOptions trial_options(VariantPair pair, int64_t until_ns) const override {
    TrialOptions options = MadeUpTarget::trial_options(pair, until_ns);
    options.block_seconds = 100;
    return options;
  }
  std::string long_blocks{};
};

class Silent final : public OptimizeObserver {
  void on_message(const std::string&) override {}
  void on_trial(const TrialRecord&) override {}
};

TrialVerdict verdict_of(const OptimizeResult& result, std::string_view technique) {
  std::set<TrialVerdict> verdicts;
  for (const TrialRecord& record : result.trials)
    if (record.technique == technique) verdicts.insert(record.verdict);
  EXPECT_EQ(verdicts.size(), 1U) << technique;
  return verdicts.empty() ? TrialVerdict::kNotTried : *verdicts.begin();
}

TEST(MadeUpTarget, GoesThroughTheWholeLoop) {
  MadeUpTarget target;
  Silent silent;
  // No clock is near the end of this budget.
  const OptimizeResult result = run_loop(target, {.budget_seconds = 1e6}, silent);
  EXPECT_EQ(verdict_of(result, "early"), TrialVerdict::kKept);
  EXPECT_EQ(verdict_of(result, "wrong"), TrialVerdict::kGuardFailed);
  EXPECT_EQ(verdict_of(result, "costly"), TrialVerdict::kRefused);
  EXPECT_EQ(verdict_of(result, "crash"), TrialVerdict::kFailed);
  EXPECT_EQ(verdict_of(result, "idle"), TrialVerdict::kNotFaster);
  EXPECT_EQ(verdict_of(result, "late"), TrialVerdict::kKept);
  EXPECT_EQ(verdict_of(result, "steady"), TrialVerdict::kKept);
  EXPECT_EQ(verdict_of(result, "without early"), TrialVerdict::kDropped);
  EXPECT_EQ(verdict_of(result, "without steady"), TrialVerdict::kKept);
  EXPECT_EQ(verdict_of(result, kProofTechnique), TrialVerdict::kKept);
  EXPECT_NEAR(result.summary.claim.speedup, 2 * 1.3, 0.03);
  EXPECT_TRUE(result.summary.recipe.starts_with("late\nsteady\n# ")) << result.summary.recipe;
  // Each trial has its share of one error of acceptance.
  double error = 0;
  for (const TrialRecord& record : result.trials) {
    if (record.technique != kProofTechnique && !record.pairs.empty())
      error += record.judge.accept_error;
    const auto hash_of = [](std::string_view text) { return "hash of " + std::string(text); };
    EXPECT_EQ(contradictions(record, hash_of), Names()) << record.technique;
  }
  EXPECT_LE(error, JudgeOptions{}.accept_error);
  EXPECT_EQ(kept_steps(result.trials).size(), 2U);
  const TrialResult again = replay(result.trials.back(), target, 1e6, 1);
  ASSERT_TRUE(again.interval);
  EXPECT_LE(again.interval->low, std::log(2.6));
  EXPECT_GE(again.interval->high, std::log(2.6));
}

// Its examination comes last, of what was kept, and has time of its own.
class ExaminedTarget final : public MadeUpTarget {
 public:
  double proof_extra_seconds() const override { return 7e5; }
  TrialResult prove(VariantPair pair, const ProofOptions& proof) override {
    seconds_of_proof = 1e-9 * static_cast<double>(proof.trial.until_ns - now_ns());
    return MadeUpTarget::prove(pair, proof);
  }
  void examine(std::span<const Change> kept, const LoopView& loop) override {
    EXPECT_TRUE(loop.summary.is_faster());
    for (const Change& change : kept) examined.push_back(change.technique);
    loop.summary.examination = {.findings = {{.rule = "R01", .title = "starved"}}};
  }
  Names examined{};
  double seconds_of_proof = 0;
};

TEST(MadeUpTarget, WhatWasProvenIsExaminedInTimeOfItsOwn) {
  ExaminedTarget target;
  Silent silent;
  const OptimizeResult result = run_loop(target, {.budget_seconds = 1e6}, silent);
  EXPECT_EQ(target.examined, (Names{"late", "steady"}));
  EXPECT_LT(target.seconds_of_proof, 3e5 + 1);
  EXPECT_GT(target.seconds_of_proof, 1e5);
  ASSERT_TRUE(result.summary.examination);
  EXPECT_EQ(result.summary.examination->findings.size(), 1U);
}

// A confirmation that is refused leaves no claim, no recipe, and what was said before the proof.
class ConfirmedTarget final : public MadeUpTarget {
 public:
  explicit ConfirmedTarget(ConfirmVerdict verdict) : verdict_(verdict) {}
  std::unique_ptr<TunedVariant> start(const LoopView& loop) override {
    loop.summary.examination = {.findings = {{.rule = "R02", .title = "before"}}};
    return MadeUpTarget::start(loop);
  }
  void examine(std::span<const Change>, const LoopView& loop) override {
    loop.summary.examination = {.findings = {{.rule = "R01", .title = "after"}}};
  }
  std::optional<OptimizeConfirmation> confirm(std::span<const Change> kept,
                                              const LoopView&) override {
    EXPECT_EQ(kept.size(), 2U);
    return OptimizeConfirmation{.verdict = verdict_, .text = "losses were compared"};
  }
  RecipeText recipe(std::span<const Change> kept, const RecipeClaim* proven) override {
    RecipeText text = MadeUpTarget::recipe(kept, proven);
    if (proven != nullptr) text.toml += "# " + proven->confirmed + "; " + proven->holds_back;
    return text;
  }

 private:
  ConfirmVerdict verdict_;
};

TEST(MadeUpTarget, AConfirmationStandsInTheRecipeOrWithdrawsTheClaim) {
  for (const ConfirmVerdict verdict : {ConfirmVerdict::kConfirmed, ConfirmVerdict::kCannotTell}) {
    ConfirmedTarget target(verdict);
    Silent silent;
    const OptimizeSummary summary = run_loop(target, {.budget_seconds = 1e6}, silent).summary;
    EXPECT_NE(summary.recipe.find("# losses were compared; R01 after"), std::string::npos)
        << summary.recipe;
    EXPECT_GT(summary.claim.speedup, 2);
    EXPECT_EQ(summary.examination->findings.front().title, "after");
  }
  ConfirmedTarget target(ConfirmVerdict::kRefused);
  Silent silent;
  const OptimizeSummary summary = run_loop(target, {.budget_seconds = 1e6}, silent).summary;
  EXPECT_EQ(summary.recipe, "");
  EXPECT_FALSE(summary.is_faster());
  EXPECT_EQ(summary.claim.speedup, 1);
  EXPECT_NE(summary.advice.find("losses were compared"), std::string::npos) << summary.advice;
  EXPECT_EQ(summary.notes.back(), "--only late,steady tries what was kept and keeps all bits");
  EXPECT_EQ(summary.examination->findings.front().title, "before");
}

// A small gain needs many pairs where pairs differ, and then comes behind the large one.
TEST(MadeUpTarget, TheNoiseThatItMeasuresDecidesWhatIsTriedFirst) {
  for (const auto& [noise, first] : {std::pair(0.02, "steady"), std::pair(0.3, "late")}) {
    NoisyTarget target(noise);
    Silent silent;
    const OptimizeResult result = run_loop(target, {.budget_seconds = 1e6}, silent);
    ASSERT_FALSE(result.trials.empty());
    EXPECT_EQ(result.trials.front().technique, first) << noise;
    EXPECT_EQ(result.trials.front().verdict, TrialVerdict::kKept) << result.trials.front().reason;
  }
}

TEST(MadeUpTarget, APromisingChangeMayTakeTheTimeOfTrialsWithout) {
  LongTarget target;
  Silent silent;
  const OptimizeResult result = run_loop(target, {.budget_seconds = 20'000}, silent);
  EXPECT_EQ(result.trials[0].technique, "late");
  EXPECT_EQ(verdict_of(result, "late"), TrialVerdict::kKept);
  EXPECT_EQ(verdict_of(result, "steady"), TrialVerdict::kKept);
  EXPECT_EQ(verdict_of(result, "early"), TrialVerdict::kNotTried);
}

// A change that takes long blocks comes later, though it promises more.
TEST(MadeUpTarget, LongBlocksCountInTheOrder) {
  LongTarget target;
  target.long_blocks = "late";
  Silent silent;
  const OptimizeResult result = run_loop(target, {.budget_seconds = 1e6}, silent);
  EXPECT_EQ(result.trials[0].technique, "steady");
}

TEST(MadeUpTarget, RoughPredictionsDecideTheOrderAndLeaveNothingOut) {
  RoughTarget target;
  Silent silent;
  const OptimizeResult result = run_loop(target, {.budget_seconds = 1e6}, silent);
  ASSERT_GE(result.trials.size(), 2U);
  EXPECT_EQ(result.trials[0].technique, "steady");
  EXPECT_EQ(result.trials[1].technique, "late");
  EXPECT_EQ(verdict_of(result, "late"), TrialVerdict::kKept);
  EXPECT_EQ(result.trials[1].predicted->high, 1.0);
}

}  // namespace
}  // namespace ridge
