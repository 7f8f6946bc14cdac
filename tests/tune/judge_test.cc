// The judge against 2,000 series of synthetic noise: what it accepts when there is nothing to gain,
// and what it finds when there is.
#include "ridge/proof/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "tests/support/scale.h"

namespace ridge {
namespace {

using Random = std::mt19937_64;

// Logarithms of the times of the blocks of one series, without any gain.
using Noise = std::vector<double> (*)(Random&, size_t blocks, double deviation);

std::vector<double> white(Random& random, size_t blocks, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> out(blocks);
  for (double& x : out) x = normal(random);
  return out;
}

// The machine grows warmer, or its clock slower, by up to a third over the series.
std::vector<double> drift(Random& random, size_t blocks, double deviation) {
  auto out = white(random, blocks, deviation);
  const double slope = std::uniform_real_distribution<double>(-0.3, 0.3)(random);
  for (size_t i = 0; i < blocks; ++i)
    out[i] += slope * static_cast<double>(i) / static_cast<double>(blocks);
  return out;
}

// A neighbour that comes and goes, and takes up to a half.
std::vector<double> bursts(Random& random, size_t blocks, double deviation) {
  auto out = white(random, blocks, deviation);
  std::uniform_real_distribution<double> uniform;
  std::exponential_distribution<double> size(3.0);
  bool busy = false;
  for (double& x : out) {
    busy = uniform(random) < (busy ? 0.85 : 0.05);
    if (busy) x += size(random);
  }
  return out;
}

// Each block remembers nine tenths of the one before.
std::vector<double> remembering(Random& random, size_t blocks, double deviation) {
  auto out = white(random, blocks, deviation);
  for (size_t i = 1; i < blocks; ++i) out[i] += 0.9 * out[i - 1];
  return out;
}

// A period of four blocks, the worst for pairs of four.
std::vector<double> periodic(Random& random, size_t blocks, double deviation) {
  auto out = white(random, blocks, deviation);
  const double phase = std::uniform_real_distribution<double>(0, 6.28)(random);
  for (size_t i = 0; i < blocks; ++i)
    out[i] += 0.2 * std::sin(1.5708 * static_cast<double>(i) + phase);
  return out;
}

constexpr Noise kNoises[] = {white, drift, bursts, remembering, periodic};

// A whole trial: ABBA or BAAB by a coin, until the verdict or the last pair.
Judge trial(Random& random,
            Noise noise,
            double deviation,
            double gain,
            size_t pairs,
            const JudgeOptions& options = {}) {
  const auto blocks = noise(random, 4 * pairs, deviation);
  Judge judge(options);
  for (size_t i = 0; i < pairs && judge.verdict() == Verdict::kOpen; ++i) {
    const double* b = &blocks[4 * i];
    const double outer = (b[0] + b[3]) / 2, inner = (b[1] + b[2]) / 2;
    judge.add(gain + (random() % 2 == 0 ? outer - inner : inner - outer));
  }
  return judge;
}

struct Rates {
  double faster = 0, not_faster = 0, pairs = 0;
};

Rates rates(Noise noise, double deviation, double gain, int series, uint64_t seed) {
  Rates out;
  Random random(seed);
  for (int i = 0; i < series; ++i) {
    const Judge judge = trial(random, noise, deviation, gain, 150);
    out.faster += judge.verdict() == Verdict::kFaster;
    out.not_faster += judge.verdict() == Verdict::kNotFaster;
    out.pairs += static_cast<double>(judge.log_ratios().size());
  }
  out.faster /= series, out.not_faster /= series, out.pairs /= series;
  return out;
}

TEST(Judge, AcceptsAtMostOneInTwentyWhenThereIsNothingToGain) {
  const int series = test::cases(2000);
  for (size_t kind = 0; kind < std::size(kNoises); ++kind)
    for (double deviation : {0.005, 0.05})
      EXPECT_LE(rates(kNoises[kind], deviation, 0.0, series / 10, 17 + kind).faster, 0.05) << kind;
}

// The bound itself, where it is hardest to hold: the gain is the largest that is not worth having.
TEST(Judge, ErrorHoldsAtTheEdge) {
  const int series = test::cases(2000) / 4;
  const double slack = 3 * std::sqrt(0.05 * 0.95 / series);
  for (size_t kind = 0; kind < std::size(kNoises); ++kind) {
    EXPECT_LE(rates(kNoises[kind], 0.03, JudgeOptions().worth, series, 31 + kind).faster,
              0.05 + slack)
        << kind;
    EXPECT_LE(rates(kNoises[kind], 0.03, JudgeOptions().hope, series, 47 + kind).not_faster,
              0.05 + slack)
        << kind;
  }
}

TEST(Judge, FindsFivePercentAndRefusesWhatIsSlower) {
  for (Noise noise : {white, drift, remembering}) {
    const Rates found = rates(noise, 0.03, std::log(1.05), 100, 5);
    EXPECT_GE(found.faster, 0.95);
    EXPECT_LE(found.pairs, 40);
    const Rates refused = rates(noise, 0.03, std::log(0.97), 100, 6);
    EXPECT_GE(refused.not_faster, 0.99);
    EXPECT_EQ(refused.faster, 0);
  }
}

TEST(Judge, IntervalsHoldTheTrueGain) {
  Random random(3);
  const int series = test::cases(400);
  int missed = 0, none = 0;
  for (int i = 0; i < series; ++i) {
    const double gain = 0.01 * static_cast<double>(i % 20);
    // A judge that never decides takes all pairs.
    const JudgeOptions patient{.accept_error = 1e-300, .reject_error = 1e-300};
    const Noise noise = kNoises[static_cast<size_t>(i) % std::size(kNoises)];
    const auto interval = trial(random, noise, 0.03, gain, 60, patient).interval(0.95);
    if (!interval)
      ++none;
    else
      missed += gain < interval->low || gain > interval->high;
  }
  EXPECT_LE(missed, 0.05 * series);
  EXPECT_EQ(none, 0);
}

TEST(Judge, NarrowsWithPairs) {
  Random random(8);
  Judge judge(JudgeOptions{});
  std::normal_distribution<double> normal(0.1, 0.02);
  double width = std::numeric_limits<double>::infinity();
  for (int i = 1; i <= 200; ++i) {
    judge.add(normal(random));
    if (i % 50 != 0) continue;
    const auto interval = judge.interval(0.95);
    ASSERT_TRUE(interval.has_value());
    EXPECT_LT(interval->high - interval->low, width);
    width = interval->high - interval->low;
  }
  EXPECT_LT(width, 0.015);
}

TEST(Judge, OnePairOfABurstDecidesNothing) {
  Judge judge(JudgeOptions{});
  for (int i = 0; i < 6; ++i) judge.add(i % 2 == 0 ? 0.002 : -0.002);
  EXPECT_EQ(judge.add(1e6), Verdict::kOpen);
  EXPECT_EQ(judge.add(-1e6), Verdict::kOpen);
  EXPECT_THROW(judge.add(std::numeric_limits<double>::quiet_NaN()), InternalError);
}

TEST(Judge, EqualTimesAreNoGain) {
  Judge judge(JudgeOptions{});
  for (int i = 0; i < 40; ++i) judge.add(0.0);
  EXPECT_EQ(judge.verdict(), Verdict::kNotFaster);
}

TEST(Judge, FirstVerdictStands) {
  Judge judge(JudgeOptions{});
  while (judge.verdict() == Verdict::kOpen) judge.add(0.2);
  for (int i = 0; i < 100; ++i) judge.add(-0.2);
  EXPECT_EQ(judge.verdict(), Verdict::kFaster);
}

TEST(Judge, PowerIsWhatIsPredicted) {
  const JudgeOptions options;
  const int64_t pairs = pairs_for_power(options, std::log(1.05), 0.04, 0.8, 500);
  Random random(21);
  int found = 0;
  for (int i = 0; i < 300; ++i)
    found += trial(random, white, 0.04, std::log(1.05), static_cast<size_t>(pairs)).verdict() ==
             Verdict::kFaster;
  EXPECT_NEAR(found / 300.0, 0.8, 0.1);
  EXPECT_EQ(pairs_for_power(options, 0.0, 0.04, 0.8, 100), 100);
}

}  // namespace
}  // namespace ridge
