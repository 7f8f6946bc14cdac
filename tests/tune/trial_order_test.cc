// The next trial is the one that promises most for its time.
#include "ridge/proof/trial_order.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace ridge {
namespace {

using Promises = std::vector<std::optional<Promise>>;

TEST(TrialOrder, GainOverCost) {
  // Half of the time for 10 s, a fifth for 2, most of it for 100.
  const Promises promises = {
      Promise{2, 10, false}, Promise{1.25, 2, false}, Promise{10, 100, false}};
  EXPECT_DOUBLE_EQ(value_of(promises[0].value()), 0.05);
  EXPECT_DOUBLE_EQ(value_of(promises[1].value()), 0.1);
  EXPECT_EQ(most_promising(promises), 1u);
  EXPECT_EQ(most_promising({}), std::nullopt);
  EXPECT_EQ(most_promising(Promises{std::nullopt}), std::nullopt);
  EXPECT_EQ(most_promising(Promises{std::nullopt, Promise{0.5, 1, false}}), 1u);
  // What promises a loss comes last, not never.
  EXPECT_EQ(most_promising(Promises{Promise{0.5, 1, false}, Promise{0.9, 1, true}}), 1u);
}

TEST(TrialOrder, OfEqualsLoadingThenTheFirst) {
  const Promise computes{1.5, 4, false}, loads{1.5, 4.2, true}, dear{1.5, 6, true};
  EXPECT_EQ(most_promising(Promises{computes, loads}), 1u);
  EXPECT_EQ(most_promising(Promises{loads, computes}), 0u);
  EXPECT_EQ(most_promising(Promises{computes, dear}), 0u);
  EXPECT_EQ(most_promising(Promises{computes, computes}), 0u);
}

TEST(TrialOrder, WorthATrialIsWhatMayGainMuchOrLikelyGainsALittle) {
  EXPECT_TRUE(is_worth_trying({1.0, 1.03}));
  EXPECT_TRUE(is_worth_trying({0.9, 1.06}));
  EXPECT_FALSE(is_worth_trying({0.97, 1.03}));
  EXPECT_FALSE(is_worth_trying({0.5, 0.8}));
}

TEST(TrialOrder, FaintGainsAndNoiseTakeMorePairs) {
  EXPECT_GT(pairs_expected(1.05, 0.05), pairs_expected(1.5, 0.05));
  EXPECT_GT(pairs_expected(1.05, 0.05), pairs_expected(1.05, 0.01));
  EXPECT_EQ(pairs_expected(1.0, 0.01), 200);
  EXPECT_LT(pairs_expected(2, 0.01), 10);
}

}  // namespace
}  // namespace ridge
