// The memory planner: replayed lifetimes never overlap, and known layouts are found.
#include "ridge/compile/memory/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// Walks the steps and marks bytes: independent of how the planner looks for gaps.
void expect_no_overlap(const std::vector<Lifetime>& lifetimes, const Layout& layout) {
  int last = 0;
  for (const Lifetime& life : lifetimes) last = std::max(last, life.end);
  for (int step = 0; step <= last; ++step) {
    std::vector<bool> taken(static_cast<size_t>(layout.peak));
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      if (lifetimes[i].begin > step || lifetimes[i].end < step) continue;
      for (int64_t b = 0; b < lifetimes[i].bytes; ++b) {
        const auto at = static_cast<size_t>(layout.offsets[i] + b);
        ASSERT_LT(at, taken.size());
        ASSERT_FALSE(taken[at]) << "step " << step << ", buffer " << i;
        taken[at] = true;
      }
    }
  }
}

TEST(Memory, RandomLifetimesNeverOverlap) {
  for (int seed = 0; seed < cases(100); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    std::vector<Lifetime> lifetimes;
    for (int64_t i = random.integer(1, 40); i > 0; --i) {
      const int begin = static_cast<int>(random.integer(0, 30));
      lifetimes.push_back(
          {random.integer(1, 3000), begin, begin + static_cast<int>(random.integer(0, 12))});
    }
    const Layout layout = lay_out(lifetimes);
    expect_no_overlap(lifetimes, layout);
    EXPECT_GE(layout.peak, layout.lower_bound);
    for (int64_t offset : layout.offsets) EXPECT_EQ(offset % kBufferAlignment, 0);
    int64_t apart = 0;
    for (const Lifetime& life : lifetimes) apart += aligned_bytes(life.bytes);
    const Layout separate = lay_out(lifetimes, false);
    expect_no_overlap(lifetimes, separate);
    EXPECT_EQ(separate.peak, apart);
    EXPECT_EQ(separate.lower_bound, layout.lower_bound);
  }
}

TEST(Memory, BuffersThatDoNotMeetShareBytes) {
  const Layout layout = lay_out(std::vector<Lifetime>{{640, 0, 1}, {640, 2, 3}, {640, 4, 5}});
  EXPECT_EQ(layout.peak, 640);
  EXPECT_EQ(layout.lower_bound, 640);
}

TEST(Memory, TheSmallestGapThatFitsIsTaken) {
  // At step 3 the buffers of 512 and 256 bytes have left gaps: the small buffer takes the smaller.
  const std::vector<Lifetime> lifetimes{
      {1024, 0, 9}, {512, 0, 1}, {448, 0, 9}, {256, 0, 1}, {192, 0, 9}, {128, 3, 3}};
  const Layout layout = lay_out(lifetimes);
  EXPECT_EQ(layout.peak, layout.lower_bound);
  EXPECT_EQ(layout.offsets[5], layout.offsets[3]);
}

// All orders in which buffers can be stacked, each on top of the highest that it meets.
int64_t least_by_force(const std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t least = std::numeric_limits<int64_t>::max();
  do {
    std::vector<int64_t> heights(64);
    for (size_t i : order) {
      const auto begin = heights.begin() + lifetimes[i].begin;
      const auto end = heights.begin() + lifetimes[i].end + 1;
      std::fill(begin, end, *std::max_element(begin, end) + aligned_bytes(lifetimes[i].bytes));
    }
    least = std::min(least, *std::max_element(heights.begin(), heights.end()));
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

std::vector<Lifetime> random_lifetimes(Random& random, int64_t count) {
  std::vector<Lifetime> lifetimes;
  for (int64_t i = 0; i < count; ++i) {
    const int begin = static_cast<int>(random.integer(0, 12));
    lifetimes.push_back(
        {64 * random.integer(1, 20), begin, begin + static_cast<int>(random.integer(0, 8))});
  }
  return lifetimes;
}

TEST(Memory, TheSearchFindsTheLeastLayout) {
  for (int seed = 0; seed < cases(150); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const std::vector<Lifetime> lifetimes = random_lifetimes(random, random.integer(2, 7));
    const int64_t least = least_by_force(lifetimes);
    const Layout found = search_layout(lifetimes, least + 1, 1'000'000);
    ASSERT_EQ(found.peak, least) << "seed " << seed;
    expect_no_overlap(lifetimes, found);
    EXPECT_TRUE(search_layout(lifetimes, least, 1'000'000).offsets.empty());
    EXPECT_EQ(lay_out(lifetimes).peak, least) << "seed " << seed;
  }
}

TEST(Memory, RandomLayoutsComeNearTheLowerBound) {
  double worst = 1, sum = 0;
  const int count = cases(40);
  for (int seed = 0; seed < count; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const Layout layout = lay_out(random_lifetimes(random, 60));
    const double ratio = static_cast<double>(layout.peak) / static_cast<double>(layout.lower_bound);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(worst, 1.06);
  EXPECT_LE(sum / count, 1.02);
}

TEST(Memory, NoBuffersNeedNoBytes) {
  const Layout layout = lay_out({});
  EXPECT_EQ(layout.peak, 0);
  EXPECT_EQ(layout.lower_bound, 0);
}

}  // namespace
}  // namespace ridge::test
