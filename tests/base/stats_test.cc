// Literals marked (scipy) come from SciPy 1.17.1 and NumPy 2.4.6.
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

TEST(Stats, IntervalsCoverAsOftenAsTheySay) {
  std::mt19937_64 random(13);
  std::normal_distribution<double> normal(5, 2);
  int covers = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    Values values(12);
    for (double& v : values) v = normal(random);
    const auto interval = median_interval(values, 0.9);
    covers += interval->low <= 5 && 5 <= interval->high;
  }
  // The exact level for n = 12, within four standard errors.
  const double level = median_interval(counted(12), 0.9)->confidence;
  EXPECT_NEAR(covers / double{kRounds}, level, 4 * std::sqrt(level * (1 - level) / kRounds));
}

TEST(Stats, RefusesWhatHasNoAnswer) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(median(Values{}), InternalError);
  EXPECT_THROW(median(Values{1, kNaN}), InternalError);
  EXPECT_THROW(quantile(kTen, 1.1), InternalError);
  EXPECT_THROW(quantile(kTen, kNaN), InternalError);
  EXPECT_THROW(median_interval(kTen, 1.0), InternalError);
}

}  // namespace
}  // namespace ridge
