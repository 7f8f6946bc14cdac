// Sets of stretches against a bitmap that has a bit a nanosecond.
#include "ridge/doctor/trace/intervals.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace ridge::doctor {
namespace {

constexpr int64_t kEnd = 200;
using Bits = std::bitset<kEnd>;

Bits bits_of(const std::vector<Interval>& stretches) {
  Bits bits;
  for (const Interval& stretch : stretches)
    for (int64_t t = stretch.begin; t < stretch.end; ++t) bits.set(static_cast<size_t>(t));
  return bits;
}

// Some long, some empty, some turned around; many touch.
std::vector<Interval> random_stretches(std::mt19937& random) {
  std::uniform_int_distribution<int64_t> at(0, kEnd - 1), length(-2, 12);
  std::vector<Interval> stretches(random() % 24);
  for (Interval& stretch : stretches) {
    stretch.begin = at(random);
    stretch.end = std::min(kEnd, stretch.begin + length(random));
  }
  return stretches;
}

void expect_is(const Intervals& set, const Bits& bits) {
  EXPECT_EQ(bits_of(set), bits);
  EXPECT_EQ(total_length(set), static_cast<int64_t>(bits.count()));
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_LT(set[i].begin, set[i].end);
    if (i == 0) continue;
    EXPECT_LT(set[i - 1].end, set[i].begin) << "touch or overlap";
  }
}

TEST(Intervals, AreWhatABitmapSays) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 3000; ++trial) {
    const std::vector<Interval> first = random_stretches(random), second = random_stretches(random);
    const Bits a = bits_of(first), b = bits_of(second);
    const Intervals set_a = union_of(first), set_b = union_of(second);
    expect_is(set_a, a);
    expect_is(intersection_of(set_a, set_b), a & b);
    expect_is(difference_of(set_a, set_b), a & ~b);
    const int64_t from = static_cast<int64_t>(random() % kEnd);
    const Interval window{from, from + static_cast<int64_t>(random() % (kEnd - from + 1))};
    expect_is(clipped(set_a, window), a & bits_of({window}));
    if (::testing::Test::HasFailure()) FAIL() << "trial " << trial;
  }
}

TEST(Intervals, NothingHasNoLength) {
  EXPECT_TRUE(union_of({}).empty());
  EXPECT_TRUE(union_of({{5, 5}, {7, 3}}).empty());
  EXPECT_EQ(total_length({}), 0);
  EXPECT_TRUE(intersection_of({{0, 5}}, {{5, 9}}).empty());
  EXPECT_TRUE(clipped({{0, 5}}, {9, 2}).empty());
}

TEST(Intervals, TouchingStretchesAreOne) {
  EXPECT_EQ(union_of({{5, 9}, {0, 5}}), (Intervals{{0, 9}}));
  EXPECT_EQ(difference_of({{0, 9}}, {{0, 5}}), (Intervals{{5, 9}}));
}

}  // namespace
}  // namespace ridge::doctor
