// Shuffles and splits: permutations, uniform, and pinned.
#include "ridge/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "ridge/base/error.h"

namespace ridge::data {
namespace {

std::vector<int64_t> shuffled(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> items(static_cast<size_t>(count));
  std::iota(items.begin(), items.end(), int64_t{0});
  shuffle(items, seed, epoch);
  return items;
}

TEST(Order, ShuffleIsAPermutationOfSeedAndEpoch) {
  const auto order = shuffled(1000, 1, 2);
  EXPECT_EQ(order, shuffled(1000, 1, 2));
  EXPECT_NE(order, shuffled(1000, 2, 2));
  EXPECT_NE(order, shuffled(1000, 1, 3));
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[i], i);
}

// Checkpoints hold a position in this order: it may not change between versions.
TEST(Order, ShuffleIsPinned) {
  EXPECT_EQ(shuffled(8, 0, 0), (std::vector<int64_t>{0, 4, 2, 7, 5, 6, 1, 3}));
}

// 24 orders of 4 items, 24000 draws: the statistic has 23 degrees of freedom, and exceeds 64 by
// chance once in 100,000 times.
TEST(Order, AllOrdersAreEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 24000; ++epoch) ++counts[shuffled(4, 9, epoch)];
  ASSERT_EQ(counts.size(), 24u);
  double statistic = 0;
  for (const auto& [order, count] : counts) statistic += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(statistic, 64);
  EXPECT_GT(statistic, 5);
}

TEST(Order, SplitsAreDisjointAndComplete) {
  for (int64_t count : {2, 3, 10, 1001}) {
    const auto train = split_samples(count, 0.1, Split::kTrain);
    const auto eval = split_samples(count, 0.1, Split::kEval);
    std::set<int64_t> all(train.begin(), train.end());
    all.insert(eval.begin(), eval.end());
    EXPECT_EQ(static_cast<int64_t>(all.size()), count);
    EXPECT_EQ(static_cast<int64_t>(train.size() + eval.size()), count);
    EXPECT_EQ(*all.rbegin(), count - 1);
    EXPECT_TRUE(std::is_sorted(train.begin(), train.end()));
    EXPECT_EQ(static_cast<int64_t>(eval.size()), std::max<int64_t>(1, (count + 5) / 10));
  }
  EXPECT_THROW(split_samples(1, 0.1, Split::kEval), UserError);
  EXPECT_THROW(split_samples(10, 0.0, Split::kEval), UserError);
  EXPECT_THROW(split_samples(10, 1.0, Split::kTrain), UserError);
}

TEST(Order, NumbersOfASampleDependOnItsKeyAlone) {
  SampleRandom a({.seed = 1, .epoch = 2, .sample = 3}), b({.seed = 1, .epoch = 2, .sample = 3});
  SampleRandom c({.seed = 1, .epoch = 2, .sample = 4});
  const double first = a.uniform();
  EXPECT_EQ(first, b.uniform());
  EXPECT_NE(first, c.uniform());
  std::array<int, 5> counts{};
  for (int64_t i = 0; i < 5000; ++i) ++counts[SampleRandom({.sample = i}).below(5)];
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace ridge::data
