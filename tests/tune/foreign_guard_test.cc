// Verdicts over records whose truth is known: made by hand, and drawn from populations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "ridge/tune/pytorch/guard/guard.h"
#include "tests/support/scale.h"
#include "tests/tune/foreign_draws.h"

namespace ridge {
namespace {

using attach::RunRecord;
using test::Change;
using test::Draw;
using test::Population;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

GuardOutcome judge(const ForeignBaseline& baseline,
                   const std::vector<RunRecord>& candidates,
                   SemanticClass semantic_class) {
  const GuardOutcome answer = judge_runs(baseline, candidates, semantic_class);
  EXPECT_FALSE(answer.text.empty());
  EXPECT_EQ(answer.text.find('\n'), std::string::npos);
  EXPECT_EQ(answer.text.starts_with("cannot tell"), !answer.can_tell) << answer.text;
  EXPECT_FALSE(answer.passed && !answer.can_tell);
  return answer;
}

constexpr SemanticClass kBits = SemanticClass::kBitIdentical;
constexpr SemanticClass kOrder = SemanticClass::kReassociation;
constexpr SemanticClass kPrecise = SemanticClass::kPrecision;

/// Of `trials` draws, how many were passed and how many rejected.
struct Shares {
  double passed = 0, rejected = 0;
};
Shares shares(const Population& of,
              const Change& change,
              size_t seeds,
              SemanticClass semantic_class) {
  const int trials = std::max(1000, test::cases(1000));  // of fewer no rate can be told
  Shares found;
  for (int trial = 0; trial < trials; ++trial) {
    Draw draw(static_cast<uint64_t>(trial) + 1);
    const ForeignBaseline baseline = draw.baseline(of, seeds);
    Change scaled = change;
    scaled.shift *= margin_of(baseline).margin;
    const GuardOutcome answer =
        judge_runs(baseline, draw.changed(baseline, scaled), semantic_class);
    found.passed += answer.passed ? 1.0 / trials : 0;
    found.rejected += !answer.passed && answer.can_tell ? 1.0 / trials : 0;
  }
  return found;
}

// ---- class 0 ----

TEST(ForeignBits, SamePassAndOneBitFails) {
  Draw draw(1);
  const ForeignBaseline baseline = draw.baseline({}, 2);
  EXPECT_TRUE(baseline.is_repeatable());
  std::vector<RunRecord> candidates = baseline.seeds;
  GuardOutcome answer = judge(baseline, candidates, kBits);
  EXPECT_TRUE(answer.passed);
  EXPECT_EQ(answer.text,
            "the same bits: losses and gradient norms of 40 steps x 2 seeds, and all parameters "
            "behind them");
  candidates[1].losses[20] = std::nextafter(candidates[1].losses[20], 0);
  answer = judge(baseline, candidates, kBits);
  EXPECT_FALSE(answer.passed);
  EXPECT_TRUE(answer.can_tell);
  EXPECT_EQ(answer.text, "not the same bits: the loss of step 21 of run 2 differs");
  candidates = {baseline.seeds[0]};
  candidates[0].parameters_hash = "other";
  answer = judge(baseline, candidates, kBits);
  EXPECT_EQ(answer.text,
            "not the same bits: the parameters behind the last step of the run differ");
  // The norms' sums are the shim's own.
  candidates = {baseline.seeds[0]};
  candidates[0].gradient_norms[3] *= 1 + 1e-15;
  EXPECT_TRUE(judge(baseline, candidates, kBits).passed);
  candidates[0].gradient_norms[3] *= 1 + 1e-9;
  EXPECT_FALSE(judge(baseline, candidates, kBits).passed);
}

TEST(ForeignBits, WithoutRepeatableRunsRoundingIsAllowed) {
  Draw draw(2);
  ForeignBaseline baseline = draw.baseline({}, 3);
  baseline.again = draw.changed(baseline.again, {});
  EXPECT_FALSE(baseline.is_repeatable());
  GuardOutcome answer = judge(baseline, draw.changed(baseline, {}), kBits);
  EXPECT_TRUE(answer.passed) << answer.text;
  EXPECT_NE(answer.text.find("bits could not be compared"), std::string::npos) << answer.text;
  answer = judge(baseline, draw.changed(baseline, {.first = 0.01}), kBits);
  EXPECT_FALSE(answer.passed) << answer.text;
  EXPECT_TRUE(answer.can_tell);
  // Without a hash of the parameters nothing is known of bits.
  baseline = draw.baseline({}, 3);
  for (RunRecord& record : baseline.seeds) record.parameters_hash.clear();
  baseline.again = baseline.seeds[0];
  EXPECT_FALSE(baseline.is_repeatable());
}

// ---- what no class allows ----

TEST(ForeignGuard, BrokenCandidatesFailInEveryClass) {
  Draw draw(3);
  const ForeignBaseline baseline = draw.baseline({}, 4);
  const auto reason = [&](auto&& spoil) {
    std::string text;
    for (const SemanticClass semantic_class : {kBits, kOrder, kPrecise}) {
      std::vector<RunRecord> candidates = baseline.seeds;
      spoil(candidates[2]);
      const GuardOutcome answer = judge(baseline, candidates, semantic_class);
      EXPECT_FALSE(answer.passed);
      EXPECT_TRUE(answer.can_tell);
      text = answer.text;
    }
    return text;
  };
  EXPECT_EQ(reason([](RunRecord& run) { run.losses[6] = kNaN; }),
            "the loss of step 7 is not finite");
  EXPECT_EQ(reason([](RunRecord& run) { run.gradient_norms[0] = INFINITY; }),
            "the gradient norm of step 1 is not finite");
  EXPECT_EQ(reason([](RunRecord& run) { run.losses.clear(); }), "there is no loss any more");
  EXPECT_EQ(reason([](RunRecord& run) {
              run.steps = 12;
              run.losses.resize(12);
              run.gradient_norms.resize(12);
            }),
            "the run ended after 12 of 40 steps");
  EXPECT_EQ(reason([](RunRecord& run) { run = {}; }), "no step was seen any more");
}

TEST(ForeignGuard, SaysWhatTheBaselineLacks) {
  Draw draw(4);
  const auto text = [&](ForeignBaseline baseline, SemanticClass semantic_class) {
    const GuardOutcome answer = judge(baseline, baseline.seeds, semantic_class);
    EXPECT_FALSE(answer.can_tell) << answer.text;
    return answer.text;
  };
  ForeignBaseline baseline = draw.baseline({}, 4);
  baseline.seeds[0].losses.clear();
  EXPECT_EQ(text(baseline, kOrder),
            "cannot tell: no loss of the program was seen: no .backward() on a scalar");
  EXPECT_EQ(text(draw.baseline({}, 1), kOrder),
            "cannot tell: one seed shows no noise; 2 are needed at least");
  EXPECT_EQ(text(draw.baseline({}, 3), kPrecise),
            "cannot tell: 3 seeds have a power of 0.34 only; 4 are needed");
  EXPECT_EQ(text(draw.baseline({.steps = 10}, 4), kPrecise),
            "cannot tell: 10 steps are too few; 16 are needed");
  baseline.seeds = {RunRecord{.trouble = {"no step was seen"}}};
  EXPECT_EQ(text(baseline, kBits),
            "cannot tell: no step of the program was recorded: no step was seen");
  baseline = draw.baseline({}, 4);
  for (RunRecord& run : baseline.seeds) run.losses.assign(40, 2.5);
  EXPECT_EQ(text(baseline, kPrecise),
            "cannot tell: the loss does not move over the steps, so there is no measure for "
            "differences");
  baseline = draw.baseline({}, 4);
  std::vector<RunRecord> fewer = baseline.seeds;
  fewer.pop_back();
  EXPECT_EQ(judge(baseline, fewer, kPrecise).text, "cannot tell: 3 of 4 seeds were run");
}

TEST(ForeignGuard, LossesThatWereNeverFiniteAreLeftOut) {
  Draw draw(5);
  ForeignBaseline baseline = draw.baseline({}, 4);
  for (RunRecord& run : baseline.seeds) run.losses[1] = run.losses[30] = kNaN;
  baseline.again = baseline.seeds[0];
  EXPECT_TRUE(baseline.is_repeatable());
  EXPECT_TRUE(judge(baseline, baseline.seeds, kBits).passed);
  const GuardOutcome answer = judge(baseline, baseline.seeds, kPrecise);
  EXPECT_TRUE(answer.passed) << answer.text;
}

// ---- classes 1 and 2 ----

TEST(ForeignLosses, TheMarginIsTheBaselinesAlone) {
  Draw draw(6);
  const ForeignBaseline baseline = draw.baseline({}, 4);
  const ForeignMargin margin = margin_of(baseline);
  EXPECT_GT(margin.margin, 0.01);
  EXPECT_NEAR(margin.power, 0.667, 0.01);
  for (const double shift : {0.0, 0.3}) {
    const GuardOutcome answer =
        judge(baseline, draw.changed(baseline, {.first = 1e-3, .shift = shift}), kPrecise);
    EXPECT_EQ(answer.margin, margin.margin);
    EXPECT_EQ(answer.power, margin.power);
  }
  EXPECT_EQ(judge(baseline, baseline.seeds, kOrder).margin, std::nullopt);
  EXPECT_EQ(margin_of(draw.baseline({}, 1)).margin, 0);
}

// An offset of the loss widens no limit.
TEST(ForeignLosses, AnOffsetHidesNothing) {
  for (const double offset : {0.0, 4096.0}) {
    Draw draw(7);
    const ForeignBaseline baseline = draw.baseline({.offset = offset}, 4);
    EXPECT_LT(margin_of(baseline).margin, 0.3);
    EXPECT_TRUE(judge(baseline, draw.changed(baseline, {.first = 1e-3}), kPrecise).passed);
    const GuardOutcome answer = judge(baseline, draw.changed(baseline, {.first = 0.3}), kPrecise);
    EXPECT_FALSE(answer.passed);
    EXPECT_TRUE(answer.can_tell);
    EXPECT_TRUE(answer.text.starts_with("first losses differ by ")) << answer.text;
  }
}

TEST(ForeignLosses, ClassOneIsTightClassTwoIsNot) {
  Draw draw(8);
  const ForeignBaseline baseline = draw.baseline({}, 4);
  const auto passes = [&](double first, SemanticClass semantic_class) {
    return judge(baseline, draw.changed(baseline, {.first = first}), semantic_class).passed;
  };
  EXPECT_TRUE(passes(1e-5, kOrder));
  EXPECT_FALSE(passes(3e-3, kOrder));
  EXPECT_TRUE(passes(3e-3, kPrecise));
  EXPECT_FALSE(passes(0.1, kPrecise));
  // A program that computes in bf16 itself is as coarse in any order.
  ForeignBaseline coarse = baseline;
  for (RunRecord& run : coarse.seeds) run.is_coarse = true;
  EXPECT_TRUE(judge(coarse, draw.changed(coarse, {.first = 3e-3}), kOrder).passed);
}

TEST(ForeignLosses, WithoutAControlNothingIsSaid) {
  ForeignBaseline baseline = Draw(8).baseline({}, 4);
  baseline.fine_controls.clear();
  EXPECT_EQ(judge(baseline, baseline.seeds, kOrder).text,
            "cannot tell: no run with a harmless change was made to compare");
  EXPECT_TRUE(judge(baseline, baseline.seeds, kPrecise).passed) << "it has another control";
}

// A program that amplifies rounding more has controls that do so, too.
TEST(ForeignLosses, TheLimitIsTheControls) {
  Draw draw(8);
  ForeignBaseline baseline = draw.baseline({}, 4);
  const std::vector<RunRecord> candidates = draw.changed(baseline, {.first = 1e-3});
  EXPECT_FALSE(judge(baseline, candidates, kOrder).passed);
  baseline.fine_controls = {draw.changed(baseline.seeds[0], {.first = 3e-4})};
  const GuardOutcome answer = judge(baseline, candidates, kOrder);
  EXPECT_TRUE(answer.passed) << answer.text;
  EXPECT_TRUE(answer.text.ends_with("what comes after these steps was not looked at"))
      << answer.text;
}

TEST(ForeignLosses, GradientsAloneFailToo) {
  Draw draw(9);
  const ForeignBaseline baseline = draw.baseline({}, 4);
  std::vector<RunRecord> candidates = baseline.seeds;
  for (RunRecord& run : candidates)
    for (double& norm : run.gradient_norms) norm *= 1.5;
  const GuardOutcome answer = judge(baseline, candidates, kPrecise);
  EXPECT_FALSE(answer.passed);
  EXPECT_NE(answer.text.find("gradient norms by 50 % (allowed "), std::string::npos) << answer.text;
}

TEST(ForeignLosses, FarTooGoodIsNoTrainingOfTheSame) {
  Draw draw(10);
  const ForeignBaseline baseline = draw.baseline({}, 4);
  const Change change{.shift = -5 * margin_of(baseline).margin};
  const GuardOutcome answer = judge(baseline, draw.changed(baseline, change), kPrecise);
  EXPECT_FALSE(answer.passed);
  EXPECT_NE(answer.text.find("the loss is lower by"), std::string::npos) << answer.text;
}

// ---- populations ----

// What differs by its rounding alone is not rejected, and nearly always passed.
TEST(ForeignPopulations, HarmlessChangesPass) {
  for (const Population& of : {Population{},
                               Population{.offset = 100},
                               Population{.batches = 0.4},
                               Population{.steps = 80, .seeds = 0.01}}) {
    const Shares precise = shares(of, {.first = 1e-3, .late = 0.2 * of.seeds}, 4, kPrecise);
    EXPECT_LE(precise.rejected, 0.01);
    EXPECT_GE(precise.passed, 0.95);
    const Shares order = shares(of, {.first = 1e-6, .late = 0.05 * of.seeds}, 3, kOrder);
    EXPECT_LE(order.rejected, 0.01);
    EXPECT_GE(order.passed, 0.95);
  }
}

// Pairs that differ as two seeds do are the worst that the power is promised for.
TEST(ForeignPopulations, ThePowerIsKept) {
  const Population of{.seeds = 0.2};
  const double promised = margin_of(Draw(1).baseline(of, 4)).power;
  const Shares found = shares(of, {.first = 1e-3, .late = std::sqrt(2.0) * of.seeds}, 4, kPrecise);
  EXPECT_GE(found.passed, promised - 0.12);  // the deviation over the seeds is not known exactly
  EXPECT_LE(found.rejected, 0.01);
}

TEST(ForeignPopulations, ALossOfTwiceTheMarginIsFound) {
  for (const double late : {0.01, 0.05, 0.05 * std::sqrt(2.0)}) {
    const Shares precise = shares({}, {.first = 1e-3, .late = late, .shift = 2}, 4, kPrecise);
    EXPECT_LE(precise.passed, 0.05) << late;
    const Shares order = shares({}, {.first = 1e-6, .late = late, .shift = 2}, 4, kOrder);
    EXPECT_LE(order.passed, 0.05) << late;
  }
  EXPECT_GE(shares({}, {.first = 1e-3, .late = 0.005, .shift = 2}, 4, kPrecise).rejected, 0.95);
}

// Runs that have nothing in common with the baseline's but their distribution, and worse ones.
struct Strangers {
  double passed = 0, rejected = 0, passed_worse = 0;
};
Strangers strangers(SemanticClass semantic_class, bool is_repeatable) {
  const int trials = std::max(1000, test::cases(1000));  // of fewer no rate can be told
  Strangers found;
  for (int trial = 0; trial < trials; ++trial) {
    Draw draw(static_cast<uint64_t>(trial) + 7);
    const Population of{};
    ForeignBaseline baseline = draw.baseline(of, 4);
    if (!is_repeatable) baseline.again = draw.run(of);
    std::vector<RunRecord> same, worse;
    for (int i = 0; i < 4; ++i) {
      same.push_back(draw.run(of));
      worse.push_back(draw.changed(draw.run(of), {.shift = 2 * margin_of(baseline).margin}));
    }
    const GuardOutcome answer = judge_runs(baseline, same, semantic_class);
    found.passed += answer.passed ? 1.0 / trials : 0;
    found.rejected += !answer.passed && answer.can_tell ? 1.0 / trials : 0;
    found.passed_worse += judge_runs(baseline, worse, semantic_class).passed ? 1.0 / trials : 0;
  }
  return found;
}

TEST(ForeignPopulations, RunsThatCannotBeRepeatedAreJudgedByTheirLaterLosses) {
  const Strangers found = strangers(kPrecise, false);
  EXPECT_LE(found.rejected, 0.01);
  EXPECT_GE(found.passed, 0.5);
  EXPECT_LE(found.passed_worse, 0.05);
}

// The same of a change that makes other samples; as a change of precision such runs would fail.
TEST(ForeignPopulations, AnotherTrajectoryIsJudgedByItsLaterLosses) {
  const Strangers found = strangers(SemanticClass::kTrajectory, true);
  EXPECT_LE(found.rejected, 0.01);
  EXPECT_GE(found.passed, 0.5);
  EXPECT_LE(found.passed_worse, 0.05);
  EXPECT_GE(strangers(kPrecise, true).rejected, 0.95);
}

TEST(ForeignLosses, AnotherTrajectoryNeedsAllSeeds) {
  Draw draw(11);
  const ForeignBaseline baseline = draw.baseline({}, 4);
  std::vector<RunRecord> candidates = draw.changed(baseline, {});
  const GuardOutcome answer = judge(baseline, candidates, SemanticClass::kTrajectory);
  EXPECT_TRUE(answer.passed) << answer.text;
  EXPECT_TRUE(answer.margin && answer.power);
  EXPECT_NE(answer.text.find("its samples are others"), std::string::npos) << answer.text;
  candidates.pop_back();
  EXPECT_FALSE(judge(baseline, candidates, SemanticClass::kTrajectory).can_tell);
}

// A run of half as many steps, each the mean over the samples of two: the same course of training.
// Two steps of a run may differ by their batches, which the comparison does not see.
TEST(ForeignLosses, LargerBatchesAreComparedOverTheSameSamples) {
  Draw draw(12);
  const ForeignBaseline baseline = draw.baseline({.steps = 64}, 4);
  const auto halved = [&](double worse) {
    std::vector<RunRecord> candidates;
    for (const RunRecord& seed : baseline.seeds) {
      RunRecord record = seed;
      record.steps /= 2;
      record.losses.clear();
      record.gradient_norms.clear();
      for (size_t i = 0; i < seed.losses.size(); i += 2) {
        record.losses.push_back(worse + (seed.losses[i] + seed.losses[i + 1]) / 2);
        record.gradient_norms.push_back(seed.gradient_norms[i]);
      }
      candidates.push_back(by_samples(record, 2));
    }
    return candidates;
  };
  const std::vector<RunRecord> same = halved(0);
  EXPECT_EQ(same[0].steps, 64);
  EXPECT_EQ(same[0].losses.size(), 64u);
  EXPECT_EQ(same[0].losses[62], same[0].losses[63]);
  EXPECT_EQ(same[0].losses[63], (baseline.seeds[0].losses[62] + baseline.seeds[0].losses[63]) / 2);
  const GuardOutcome passed = judge(baseline, same, SemanticClass::kTrajectory);
  EXPECT_TRUE(passed.passed) << passed.text;
  const double margin = margin_of(baseline).margin;
  EXPECT_FALSE(judge(baseline, halved(2 * margin), SemanticClass::kTrajectory).passed);
  // Held step by step, half of the steps would be missing.
  std::vector<RunRecord> short_runs = same;
  for (RunRecord& record : short_runs) record.steps = 32;
  EXPECT_FALSE(judge(baseline, short_runs, SemanticClass::kTrajectory).passed);
  EXPECT_EQ(by_samples(baseline.seeds[0], 1).losses, baseline.seeds[0].losses);
}

// ---- outputs ----

class Outputs : public testing::Test {
 protected:
  /// Calls with 64 outputs each: drawn, with an error, around an offset.
  RunRecord run(double error, double offset = 0, int calls = 30) {
    std::mt19937_64 values(1), errors(2), signs(3);
    std::normal_distribution<double> value, noise;
    RunRecord record{.steps = calls, .is_whole = true, .source = "module"};
    for (int call = 0; call < calls; ++call) {
      double sum = 0, squares = 0, projection = 0;
      for (int i = 0; i < 64; ++i) {
        const double x = offset + value(values) + error * noise(errors);
        sum += x;
        squares += x * x;
        projection += (signs() & 1) != 0 ? x : -x;
      }
      record.output_counts.push_back(64);
      record.output_sums.push_back(sum);
      record.output_squares.push_back(squares);
      record.output_projections.push_back(projection);
    }
    record.outputs_hash = std::to_string(error) + "/" + std::to_string(offset);
    return record;
  }
  GuardOutcome guard(double error, SemanticClass semantic_class, double offset = 0) {
    return judge({{run(0, offset)}, run(0, offset)}, {run(error, offset)}, semantic_class);
  }
};

TEST_F(Outputs, AreComparedInUnitsOfTheirSpread) {
  for (const double offset : {0.0, 4096.0}) {
    EXPECT_TRUE(guard(0, kBits, offset).passed);
    EXPECT_FALSE(guard(1e-5, kBits, offset).passed);
    EXPECT_TRUE(guard(1e-5, kOrder, offset).passed);
    EXPECT_FALSE(guard(1e-3, kOrder, offset).passed);
    EXPECT_TRUE(guard(1e-2, kPrecise, offset).passed);
    const GuardOutcome answer = guard(0.2, kPrecise, offset);
    EXPECT_FALSE(answer.passed);
    EXPECT_TRUE(answer.text.starts_with("outputs of 30 calls: a difference of ")) << answer.text;
    EXPECT_TRUE(answer.text.ends_with("of their spread (allowed 5 %)")) << answer.text;
  }
}

TEST_F(Outputs, WhatCannotBeComparedIsSaid) {
  const RunRecord plain = run(0);
  RunRecord other = run(0.001);
  other.output_counts[4] = 32;
  EXPECT_EQ(judge({{plain}, plain}, {other}, kPrecise).text,
            "call 5 gives other numbers of outputs");
  EXPECT_FALSE(judge({{run(0, 0, 3)}, run(0, 0, 3)}, {run(0.01, 0, 3)}, kPrecise).can_tell);
  EXPECT_FALSE(judge({{plain}, plain}, {plain}, SemanticClass::kTrajectory).can_tell);
  // Repeated runs that differ as much as what is looked for.
  EXPECT_FALSE(judge({{plain}, run(0.3)}, {run(0.01)}, kPrecise).can_tell);
  other = run(0.001);
  other.output_squares[2] = kNaN;
  EXPECT_EQ(judge({{plain}, plain}, {other}, kPrecise).text,
            "the outputs of call 3 are not finite");
}

}  // namespace
}  // namespace ridge
