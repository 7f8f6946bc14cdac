// Trials on series of times made for the purpose: the order of blocks, what is dropped, and that
// what the machine does to both variants decides nothing.
#include "ridge/proof/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <random>
#include <stdexcept>
#include <string>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/stop.h"

namespace ridge {
namespace {

/// A machine that grows slower, has bursts, and loses time to others; and programs on it.
class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) {}

  /// Seconds of `steps` steps that take `step_seconds` each when nobody disturbs.
  double run(double step_seconds, int64_t steps) {
    ++blocks_;
    double factor = 1 + 0.002 * static_cast<double>(blocks_);
    if (uniform_(random_) < 0.1) factor *= 1.5;
    factor *= std::exp(std::normal_distribution<double>(0, 0.01)(random_));
    return step_seconds * static_cast<double>(steps) * factor;
  }
  double uniform() { return uniform_(random_); }
  std::string order;  ///< Who ran, block by block.

 private:
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_;
  int64_t blocks_ = 0;
};

class Program final : public Runner {
 public:
  Program(Machine& machine, char name, double step_seconds)
      : machine_(machine), name_(name), step_seconds_(step_seconds) {}
  Block run(int64_t steps) override {
    machine_.order += name_;
    last_steps = steps;
    all_steps += steps;
    if (machine_.order.size() > fails_after) throw std::runtime_error("crashed");
    if (machine_.order.size() > stops_after) throw TrialStopped("the budget is spent");
    Block block{.seconds = machine_.run(step_seconds_, steps)};
    block.stolen_seconds = usually_stolen * block.seconds;
    if (machine_.uniform() < stolen_rate) block.stolen_seconds = block.seconds;
    return block;
  }
  void rewind() override { rewound_after.push_back(machine_.order.size()); }
  std::vector<size_t> rewound_after;  ///< Blocks of both.
  double stolen_rate = 0, usually_stolen = 0;
  int64_t last_steps = 0;  ///< Of the last block.
  int64_t all_steps = 0;
  size_t fails_after = std::string::npos, stops_after = std::string::npos;

 private:
  Machine& machine_;
  char name_;
  double step_seconds_;
};

TEST(Trial, FindsAGainAndSaysHowMuch) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Machine machine(seed);
    Program before(machine, 'A', 0.010), after(machine, 'B', 0.008);
    const TrialResult result = compare(before, after, {.seed = seed});
    ASSERT_EQ(result.verdict, Verdict::kFaster) << seed;
    EXPECT_NEAR(std::exp(result.gain), 1.25, 0.08);
    ASSERT_TRUE(result.interval.has_value());
    EXPECT_LT(result.interval->low, std::log(1.25));
    EXPECT_GT(result.interval->high, std::log(1.25));
    EXPECT_GT(result.before_seconds, result.after_seconds);
  }
}

// Steps of three times the samples that take 2.4 times as long: 1.25 times as fast a sample.
TEST(Trial, TheTimeForTheSameSamplesIsCompared) {
  for (const double work : {3.0, 1 / 3.0}) {
    Machine machine(5);
    Program small(machine, 'A', 0.010), large(machine, 'B', 0.024);
    Program& before = work > 1 ? small : large;
    Program& after = work > 1 ? large : small;
    const TrialResult result = compare(before, after, {.seed = 5, .work = work});
    ASSERT_EQ(result.verdict, work > 1 ? Verdict::kFaster : Verdict::kNotFaster);
    EXPECT_NEAR(result.gain, std::log(work > 1 ? 1.25 : 0.8), 0.06);
    EXPECT_EQ(small.last_steps, 3 * large.last_steps);
    EXPECT_EQ(small.all_steps, 3 * large.all_steps);  // they go through the data side by side
    EXPECT_EQ(result.steps, before.last_steps);
    EXPECT_EQ(result.after_steps, after.last_steps);
    EXPECT_DOUBLE_EQ(result.work, 1.0);
    EXPECT_NEAR(result.before_seconds, work > 1 ? 0.010 : 0.024, 0.01);
  }
}

// Blocks have whole steps: what that leaves of the ratio is in every pair's.
TEST(Trial, WhatRoundingLeavesOfTheWorkCounts) {
  Machine machine(6);
  Program before(machine, 'A', 0.3), after(machine, 'B', 0.45);
  const TrialResult result = compare(before, after, {.seed = 6, .least_steps = 1, .work = 1.5});
  EXPECT_EQ(result.after_steps, 1);
  EXPECT_EQ(result.steps, 2);
  EXPECT_DOUBLE_EQ(result.work, 0.75);
  EXPECT_NEAR(result.gain, 0, 0.1);
  EXPECT_NE(result.verdict, Verdict::kFaster);
  const Pair& pair = result.pairs.at(0);
  const double times = std::log((pair.before[0].seconds + pair.before[1].seconds) /
                                (pair.after[0].seconds + pair.after[1].seconds));
  EXPECT_NEAR(pair.log_ratio(), times + std::log(0.75), 1e-12);
}

TEST(Trial, BothSidesBeginAtTheSameStep) {
  Machine machine(1);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.008);
  compare(before, after, {});
  EXPECT_EQ(before.rewound_after, std::vector<size_t>{0});
  EXPECT_EQ(after.rewound_after, std::vector<size_t>{0});
}

TEST(Trial, NoGainIsNotFound) {
  int accepted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Machine machine(1000 + seed);
    Program before(machine, 'A', 0.010), after(machine, 'B', 0.010);
    accepted +=
        compare(before, after, {.seed = seed, .most_pairs = 60}).verdict == Verdict::kFaster;
  }
  EXPECT_LE(accepted, 6);
}

TEST(Trial, BlocksAreLongAndAlternateByTheCoin) {
  Machine machine(7);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.010);
  const TrialResult result =
      compare(before, after, {.seed = 7, .block_seconds = 0.5, .least_steps = 3, .most_pairs = 40});
  EXPECT_GE(result.steps, 40);
  EXPECT_LE(result.steps, 60);
  // Each block of steps this short has one before it that is not timed.
  const std::string judged = machine.order.substr(machine.order.size() - 8 * result.pairs.size());
  int outside = 0;
  for (size_t i = 0; i < result.pairs.size(); ++i) {
    const bool before_outside = result.pairs[i].before_outside;
    EXPECT_EQ(judged.substr(8 * i, 8), before_outside ? "AABBBBAA" : "BBAAAABB");
    outside += before_outside;
  }
  EXPECT_GT(outside, 8);
  EXPECT_LT(outside, 32);
}

TEST(Trial, GoesOnForTheSecondsAskedFor) {
  Machine machine(9);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.005);
  const TrialResult result = compare(before, after, {.seed = 9, .least_seconds = 3});
  EXPECT_EQ(result.verdict, Verdict::kFaster);
  double seconds = 0;
  for (const Pair& pair : result.pairs)
    for (const auto* blocks : {&pair.before, &pair.after})
      for (const Block& block : *blocks) seconds += block.seconds;
  EXPECT_GT(seconds, 3);
  EXPECT_LT(seconds, 3.2);
}

TEST(Trial, LongStepsAreAllTimed) {
  Machine machine(8);
  Program before(machine, 'A', 0.100), after(machine, 'B', 0.100);
  const TrialResult result = compare(before, after, {.seed = 8, .most_pairs = 10});
  EXPECT_EQ(result.steps, 1);
  EXPECT_EQ(machine.order.size(), 2 + 4 * result.pairs.size());
}

TEST(Trial, ABlockIsAtLeastAsLongAsTheLoaderAsks) {
  Machine machine(3);
  Program before(machine, 'A', 1.0), after(machine, 'B', 1.0);
  const TrialResult result = compare(before, after, {.least_steps = 64, .most_pairs = 2});
  EXPECT_GE(result.steps, 64);
}

TEST(Trial, StolenPairsAreDroppedAndCounted) {
  Machine machine(11);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.008);
  before.stolen_rate = after.stolen_rate = 0.1;
  const TrialResult result = compare(before, after, {.seed = 11});
  EXPECT_EQ(result.verdict, Verdict::kFaster);
  EXPECT_GT(result.dropped, 0);
  const auto marked = std::count_if(
      result.pairs.begin(), result.pairs.end(), [](const Pair& pair) { return pair.dropped; });
  EXPECT_EQ(marked, result.dropped);
}

// Others take a tenth all of the time, and now and then all: that alone is dropped.
TEST(Trial, WhereOthersAlwaysStealSomeTheRestIsJudged) {
  Machine machine(16);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.008);
  before.usually_stolen = after.usually_stolen = 0.1;
  before.stolen_rate = after.stolen_rate = 0.05;
  const TrialResult result = compare(before, after, {.seed = 16, .least_pairs = 60});
  EXPECT_EQ(result.verdict, Verdict::kFaster);
  EXPECT_GT(result.dropped, 5);
  for (const Pair& pair : result.pairs) {
    double most = 0;
    for (const auto* blocks : {&pair.before, &pair.after})
      for (const Block& block : *blocks)
        most = std::max(most, block.stolen_seconds / block.seconds);
    // The first few are dropped before the usual is known.
    if (&pair - result.pairs.data() >= 5) {
      EXPECT_EQ(pair.dropped, most > 0.9);
    }
  }
}

TEST(Trial, AMachineThatIsNeverOursEndsWithoutAVerdict) {
  Machine machine(12);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.005);
  before.stolen_rate = after.stolen_rate = 1;
  const TrialResult result = compare(before, after, {});
  EXPECT_EQ(result.verdict, Verdict::kOpen);
  EXPECT_EQ(result.dropped, static_cast<int64_t>(result.pairs.size()));
  EXPECT_FALSE(result.interval.has_value());
}

TEST(Trial, EndsWhenItIsTold) {
  Machine machine(13);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.010);
  int asked = 0;
  const TrialResult result =
      compare(before, after, {.should_stop = [&asked] { return ++asked > 3; }});
  EXPECT_EQ(result.pairs.size(), 3u);
  EXPECT_EQ(result.verdict, Verdict::kOpen);
}

TEST(Trial, EndsAtATimeOrWhenTheProcessIsToStop) {
  const TrialOptions late = trial_until(now_ns() - 1, 7);
  EXPECT_TRUE(late.should_stop());
  EXPECT_EQ(late.seed, 7u);
  EXPECT_EQ(late.cpus, usable_cpus());
  const TrialOptions early = trial_until(now_ns() + 3'600'000'000'000, 0);
  EXPECT_FALSE(early.should_stop());
  request_stop(SIGINT);
  EXPECT_TRUE(early.should_stop());
  clear_stop();
}

// A proof that the end of the budget cuts off is what its whole pairs say.
TEST(Trial, WhatWasJudgedBeforeItWasStoppedStands) {
  Machine machine(15);
  Program before(machine, 'A', 0.020), after(machine, 'B', 0.010);
  const TrialResult whole = compare(before, after, {.least_pairs = 60, .most_pairs = 60});
  ASSERT_EQ(whole.verdict, Verdict::kFaster);
  Machine same(15);
  Program first(same, 'A', 0.020), second(same, 'B', 0.010);
  second.stops_after = machine.order.size() - 3;  // within the last pair
  const TrialResult cut = compare(first, second, {.least_pairs = 60, .most_pairs = 60});
  EXPECT_EQ(cut.pairs.size(), 59u);
  EXPECT_EQ(cut.verdict, Verdict::kFaster);
  EXPECT_NEAR(cut.gain, whole.gain, 0.01);
  Program never(same, 'B', 0.010);
  never.stops_after = 0;
  EXPECT_THROW(compare(first, never, {}), TrialStopped);
}

TEST(Trial, WhatARunnerThrowsArrives) {
  Machine machine(14);
  Program before(machine, 'A', 0.010), after(machine, 'B', 0.010);
  after.fails_after = 20;
  EXPECT_THROW(compare(before, after, {}), std::runtime_error);
}

}  // namespace
}  // namespace ridge
