// Literals marked (scipy) come from SciPy 1.17.1 and NumPy 2.4.6; (exact) from rational arithmetic
// over the full null distribution in Python.
#include "ridge/base/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ridge/base/error.h"

namespace ridge {
namespace {

using Values = std::vector<double>;

const Values kTen = {3.1, -2.5, 7.25, 0.5, 4.0, 12.0, -8.5, 1.75, 6.6, 2.2};

Values counted(size_t n) {  // 1, 2, ... n: an order statistic is its own index
  Values values(n);
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Stats, MedianAndMad) {
  EXPECT_DOUBLE_EQ(median(kTen), 2.65);
  EXPECT_DOUBLE_EQ(median_absolute_deviation(kTen), 3.05);  // (scipy)
  EXPECT_EQ(median(Values{5}), 5);
  EXPECT_EQ(median(Values{3, 1, 2}), 2);
  EXPECT_EQ(median_absolute_deviation(Values{1, 1, 1, 1, 1000}), 0);
  EXPECT_EQ(median(Values{1e308, 1.2e308}), 1.1e308);  // no overflow on the way
}

TEST(Stats, QuantileOfTypeSeven) {
  const std::pair<double, double> expected[] = {
      {0, -8.5}, {0.1, -3.1}, {0.25, 0.8125}, {0.333, 1.74625}, {0.9, 7.725}, {1, 12}};  // (scipy)
  for (const auto& [p, value] : expected) EXPECT_NEAR(quantile(kTen, p), value, 1e-12) << p;
  EXPECT_EQ(quantile(Values{7}, 0.3), 7);
  EXPECT_DOUBLE_EQ(quantile(kTen, 0.5), median(kTen));
}

TEST(Stats, MedianIntervalByTheBinomial) {
  struct Case {
    size_t n, k;
    double confidence;
  };
  const Case cases[] = {{6, 1, 0.96875},  // (scipy), as are those below
                        {10, 2, 0.978515625},
                        {17, 5, 0.950958251953125},
                        {50, 18, 0.9671608624357315},
                        {101, 41, 0.9539559330706572},
                        {1500, 712, 0.9532389202177056}};
  for (const Case& c : cases) {
    const auto interval = median_interval(counted(c.n), 0.95);
    ASSERT_TRUE(interval) << c.n;
    EXPECT_EQ(interval->low, static_cast<double>(c.k)) << c.n;
    EXPECT_EQ(interval->high, static_cast<double>(c.n + 1 - c.k)) << c.n;
    EXPECT_NEAR(interval->confidence, c.confidence, 1e-10) << c.n;
  }
  EXPECT_FALSE(median_interval(counted(5), 0.95));
  EXPECT_TRUE(median_interval(counted(5), 0.90));
  EXPECT_FALSE(median_interval(Values{1}, 0.5));
}

// Hollander and Wolfe, "Nonparametric Statistical Methods", 1973: the depression scale of nine
// patients. Published: estimate 0.46, 96.1 % interval from 0.010 to 0.786.
TEST(Stats, HollanderAndWolfe) {
  const Values first = {1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
  const Values second = {0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29};
  Values differences;
  for (size_t i = 0; i < first.size(); ++i) differences.push_back(first[i] - second[i]);
  EXPECT_NEAR(hodges_lehmann(differences), 0.46, 1e-12);
  const auto interval = signed_rank_interval(differences, 0.95);
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->low, 0.010, 1e-12);
  EXPECT_NEAR(interval->high, 0.786, 1e-12);
  EXPECT_DOUBLE_EQ(interval->confidence, 0.9609375);
}

// The position k of the lower end among the sorted Walsh averages shows in the interval's ends.
TEST(Stats, SignedRankPositions) {
  struct Case {
    size_t n, k95, k99;
    double confidence95;
  };
  const Case cases[] = {{6, 1, 0, 0.96875},  // (exact), as are those below
                        {8, 4, 1, 0.9609375},
                        {10, 9, 4, 0.951171875},
                        {15, 26, 16, 0.95208740234375},
                        {20, 53, 38, 0.9515590667724609},
                        {50, 435, 374, 0.9505535931993983},
                        {200, 8445, 7945, 0.9500303687000252}};
  std::mt19937_64 random(11);
  for (const Case& c : cases) {
    Values values(c.n);
    for (double& v : values) v = std::uniform_real_distribution<double>(-1, 3)(random);
    Values averages;
    for (size_t i = 0; i < c.n; ++i)
      for (size_t j = i; j < c.n; ++j) averages.push_back((values[i] + values[j]) / 2);
    std::sort(averages.begin(), averages.end());
    const auto interval = signed_rank_interval(values, 0.95);
    ASSERT_TRUE(interval) << c.n;
    EXPECT_NEAR(interval->low, averages[c.k95 - 1], 1e-14) << c.n;
    EXPECT_NEAR(interval->high, averages[averages.size() - c.k95], 1e-14) << c.n;
    EXPECT_NEAR(interval->confidence, c.confidence95, 1e-12) << c.n;
    const auto wider = signed_rank_interval(values, 0.99);
    ASSERT_EQ(wider.has_value(), c.k99 > 0) << c.n;
    if (!wider) continue;
    EXPECT_NEAR(wider->low, averages[c.k99 - 1], 1e-14) << c.n;
  }
  EXPECT_FALSE(signed_rank_interval(counted(5), 0.95));
}

TEST(Stats, SignedRankOfLargeSamples) {
  struct Case {
    size_t n;
    int k, slack;
  };
  // (exact), in 64-bit floats; above 500 the normal approximation may be off by a few positions
  // of 180,000.
  for (const Case& c : {Case{250, 13445, 0}, Case{500, 56291, 0}, Case{600, 81826, 12}}) {
    std::mt19937_64 random(c.n);
    Values values(c.n);
    for (double& v : values) v = std::uniform_real_distribution<double>(-1, 3)(random);
    const auto interval = signed_rank_interval(values, 0.95);
    ASSERT_TRUE(interval);
    int below = 0, above = 0;
    for (size_t i = 0; i < c.n; ++i) {
      for (size_t j = i; j < c.n; ++j) {
        const double average = (values[i] + values[j]) / 2;
        below += average < interval->low - 1e-14;
        above += average > interval->high + 1e-14;
      }
    }
    EXPECT_NEAR(below, c.k - 1, c.slack) << c.n;
    EXPECT_EQ(above, below) << c.n;
    EXPECT_NEAR(interval->confidence, 0.95, 2e-4) << c.n;
  }
}

TEST(Stats, IntervalsCoverAsOftenAsTheySay) {
  std::mt19937_64 random(13);
  std::normal_distribution<double> normal(5, 2);
  int sign_covers = 0, rank_covers = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    Values values(12);
    for (double& v : values) v = normal(random);
    const auto sign = median_interval(values, 0.9), rank = signed_rank_interval(values, 0.9);
    sign_covers += sign->low <= 5 && 5 <= sign->high;
    rank_covers += rank->low <= 5 && 5 <= rank->high;
  }
  // The exact levels for n = 12, within four standard errors.
  const Values any = counted(12);
  const double sign_level = median_interval(any, 0.9)->confidence;
  const double rank_level = signed_rank_interval(any, 0.9)->confidence;
  const auto error = [](double level) { return 4 * std::sqrt(level * (1 - level) / kRounds); };
  EXPECT_NEAR(sign_covers / double{kRounds}, sign_level, error(sign_level));
  EXPECT_NEAR(rank_covers / double{kRounds}, rank_level, error(rank_level));
}

TEST(Stats, PairedRatio) {
  const Values before = {10.2, 11.0, 9.8, 10.5, 10.1, 10.9, 10.3, 10.0};
  const Values after = {7.9, 8.8, 7.7, 8.1, 8.2, 8.5, 8.05, 7.6};
  const PairedRatio rank = paired_ratio(before, after, 0.95);  // (scipy)
  EXPECT_NEAR(rank.ratio, 0.7811188146427043, 1e-14);
  EXPECT_NEAR(rank.interval->low, 0.769844497582931, 1e-14);
  EXPECT_NEAR(rank.interval->high, 0.7986905832721691, 1e-14);
  EXPECT_EQ(rank.interval->confidence, 0.9609375);
  const PairedRatio sign = paired_ratio(before, after, 0.95, PairedMethod::kSignTest);
  EXPECT_NEAR(sign.ratio, 0.780684472877625, 1e-14);
  EXPECT_NEAR(sign.interval->low, 0.76, 1e-14);
  EXPECT_NEAR(sign.interval->high, 8.2 / 10.1, 1e-14);
  // The other way round is the inverse.
  const PairedRatio inverse = paired_ratio(after, before, 0.95);
  EXPECT_NEAR(inverse.ratio * rank.ratio, 1, 1e-14);
  EXPECT_NEAR(inverse.interval->low * rank.interval->high, 1, 1e-14);
  EXPECT_FALSE(paired_ratio(Values{1, 2}, Values{2, 3}, 0.95).interval);
}

TEST(Stats, TheilSen) {
  const Values x = {1, 2, 3, 4, 5, 6, 8, 10};
  const Values y = {2.1, 3.9, 6.2, 7.8, 30.0, 12.1, 15.8, 20.3};  // one far out
  const Line line = theil_sen(x, y);
  EXPECT_NEAR(line.slope, 2.007142857142857, 1e-14);  // (scipy, method "joint")
  EXPECT_NEAR(line.intercept, 0.075, 1e-14);
  const Line repeated = theil_sen(Values{1, 1, 2, 2}, Values{3, 5, 4, 6});
  EXPECT_EQ(repeated.slope, 1);  // slopes 1, 3, -1, 1; those of equal x are left out
}

TEST(Stats, RefusesWhatHasNoAnswer) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(median(Values{}), InternalError);
  EXPECT_THROW(median(Values{1, kNaN}), InternalError);
  EXPECT_THROW(hodges_lehmann(Values{1, INFINITY}), InternalError);
  EXPECT_THROW(quantile(kTen, 1.1), InternalError);
  EXPECT_THROW(quantile(kTen, kNaN), InternalError);
  EXPECT_THROW(median_interval(kTen, 1.0), InternalError);
  EXPECT_THROW(paired_ratio(Values{1}, Values{1, 2}, 0.9), InternalError);
  EXPECT_THROW(paired_ratio(Values{1}, Values{0}, 0.9), InternalError);
  EXPECT_THROW(theil_sen(Values{2, 2}, Values{1, 3}), InternalError);
  EXPECT_THROW(hodges_lehmann(counted(10'001)), InternalError);
}

}  // namespace
}  // namespace ridge
