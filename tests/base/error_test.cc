#include "ridge/base/error.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

using Names = std::vector<std::string>;

TEST(Errors, UserErrorSaysTheFixLast) {
  const UserError error("batch is 0 in config.toml:3", "set it to 1 or more");
  EXPECT_STREQ(error.what(), "batch is 0 in config.toml:3; set it to 1 or more");
  EXPECT_EQ(error.fix(), "set it to 1 or more");
  EXPECT_STREQ(UserError("no fix").what(), "no fix");
}

TEST(Errors, ChecksThrowTheirFamilies) {
  check(true, "not thrown");
  check_internal(true, "not thrown");
  try {
    check(false, "[{}] got {}", "matmul", 7);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "[matmul] got 7");
  }
  EXPECT_THROW(check_internal(false, "{}", 1), InternalError);
}

TEST(NearestNames, OrdersByDistanceThenName) {
  const Names known = {"relu", "gelu", "selu", "softmax", "matmul"};
  EXPECT_EQ(nearest_names("relu", known), (Names{"relu", "gelu", "selu"}));
  EXPECT_EQ(nearest_names("gelu", known, 1), Names{"gelu"});
  EXPECT_EQ(nearest_names("sofmax", known), Names{"softmax"});
  EXPECT_EQ(nearest_names("mamtlu", known), Names{"matmul"});  // two swaps, four plain edits
}

TEST(NearestNames, LimitsWhatCountsAsNear) {
  EXPECT_EQ(nearest_names("ab", {"abcd"}), Names{"abcd"});  // two edits are always near
  EXPECT_TRUE(nearest_names("ab", {"abcde"}).empty());
  EXPECT_EQ(nearest_names("convolution", {"convolve2d"}).size(), 0u);  // 5 edits of 11 letters
  EXPECT_EQ(nearest_names("convolution", {"convolute"}).size(), 1u);   // 3
  EXPECT_TRUE(nearest_names("x", {}).empty());
  EXPECT_TRUE(nearest_names("something", {"else"}).empty());
}

TEST(NearestNames, SurvivesHugeAndBinaryNames) {
  const std::string huge(5'000'000, 'a');
  EXPECT_TRUE(nearest_names(huge, {"a", "aa"}).empty());
  EXPECT_TRUE(nearest_names(std::string("\0\xff\x80xyz", 6), {"threads"}).empty());
}

TEST(NearestNames, DidYouMeanReadsAsAQuestion) {
  EXPECT_EQ(did_you_mean("relv", {"relu", "matmul"}), "did you mean 'relu'?");
  EXPECT_EQ(did_you_mean("elu", {"relu", "gelu"}), "did you mean 'gelu' or 'relu'?");
  EXPECT_EQ(did_you_mean("elephant", {"relu"}), "");
}

}  // namespace
}  // namespace ridge
