// The search for the steady steps of a trace.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ridge/doctor/analysis/analysis.h"
#include "ridge/doctor/analysis/kernel_period.h"
#include "tests/doctor/made_trace.h"

namespace ridge::doctor {
namespace {

// A step of three operators and kernels, over nine tenths of it.
void add_work(MadeTrace& made, double at, double length) {
  for (int i = 0; i < 3; ++i) {
    const double begin = at + length * 0.3 * i;
    made.op("aten::mm", {begin, length * 0.2});
    made.kernel(fmt::format("gemm{}", i), begin + 1, {begin + 10, length * 0.2});
  }
}

TEST(Steps, ProfilerStepsButTheFirstAndTheCutLast) {
  MadeTrace made;
  double at = 0;
  for (int step = 0; step < 8; ++step) {
    const double length = step == 0 ? 5000 : 1000;
    made.range(fmt::format("ProfilerStep#{}", 90 + step), {at, length});
    if (step < 7) add_work(made, at, length);
    at += length;
  }
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.source, "ProfilerStep");
  EXPECT_TRUE(steps.are_marked());
  EXPECT_EQ(steps.left_out, 2) << "the long first, and the last with nothing in it";
  ASSERT_EQ(steps.windows.size(), 6u);
  EXPECT_EQ(steps.windows.front(), (Interval{5'000'000, 6'000'000}));
  EXPECT_EQ(steps.windows.back(), (Interval{10'000'000, 11'000'000}));
}

TEST(Steps, StepsOfOneLengthAllCount) {
  MadeTrace made;
  for (int step = 0; step < 5; ++step) {
    made.range("step", {1000.0 * step, 990});
    add_work(made, 1000.0 * step, 990);
  }
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.windows.size(), 5u);
  EXPECT_EQ(steps.left_out, 0);
}

TEST(Steps, TheFirstThatLoadsCodeIsWarmUp) {
  MadeTrace made;
  for (int step = 0; step < 5; ++step) {
    made.range(fmt::format("Iteration {}", step), {1000.0 * step, 1000});
    add_work(made, 1000.0 * step, 1000);
  }
  made.call("cuModuleLoadData", {900, 80});
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.left_out, 1);
  EXPECT_EQ(steps.windows.front().begin, 1'000'000);
}

TEST(Steps, AStepThatLoadsCodeLateStays) {
  MadeTrace made;
  for (int step = 0; step < 6; ++step) {
    made.range(fmt::format("Iteration {}", step), {1000.0 * step, 1000});
    add_work(made, 1000.0 * step, 1000);
  }
  made.call("cuModuleLoadData", {3900, 80});
  EXPECT_EQ(find_steps(made.done()).windows.size(), 6u);
}

// Nobody calls them steps: they are what repeats and covers the time.
TEST(Steps, RangesThatRepeatAndCoverTheWork) {
  MadeTrace made;
  made.range("fit", {0, 6000});
  for (int step = 0; step < 6; ++step) {
    const double at = 1000.0 * step;
    made.range(fmt::format("b{}", step), {at, 950});
    made.range("forward", {at, 300});
    made.range("backward", {at + 300, 500});
    add_work(made, at, 950);
  }
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.source, "b#");
  EXPECT_EQ(steps.windows.size(), 6u);
}

TEST(Steps, FromOneUpdateToTheNext) {
  MadeTrace made;
  for (int step = 0; step < 6; ++step) {
    add_work(made, 1000.0 * step, 800);
    made.range("Optimizer.step#SGD.step", {1000.0 * step + 800, 100});
  }
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.source, "optimizer");
  ASSERT_EQ(steps.windows.size(), 5u);
  EXPECT_EQ(steps.windows.front(), (Interval{900'000, 1'900'000}));
}

// Ten layers of one shape within a step: the step is what repeats, not the layer.
TEST(Steps, KernelsThatRepeat) {
  MadeTrace made;
  double at = 0;
  for (int step = 0; step < 6; ++step) {
    const auto add = [&](std::string_view name, double pause) {
      at += pause;
      made.kernel(name, at - 20, {at, 10});
      at += 10;
    };
    add("embedding", 100);
    for (int layer = 0; layer < 10; ++layer)
      for (const char* name : {"norm", "gemm", "softmax", "gemm", "gelu"}) add(name, 2);
    add("loss", 2);
    add("adam", 2);
  }
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.source, "kernels repeat");
  ASSERT_EQ(steps.windows.size(), 5u) << "of the last the end is not known";
  EXPECT_EQ(steps.windows.front().begin, 100'000) << "it begins after the pause";
  // 53 kernels of 10 us, 52 pauses of 2 us and one of 100 us.
  for (const Interval& window : steps.windows) EXPECT_EQ(window.length(), 734'000);
}

TEST(Steps, NothingRepeats) {
  MadeTrace made;
  made.op("aten::mm", {100, 50});
  made.kernel("gemm", 110, {200, 300});
  made.kernel("softmax", 120, {600, 100});
  const Steps steps = find_steps(made.done());
  EXPECT_EQ(steps.source, "whole trace");
  EXPECT_FALSE(steps.are_marked());
  EXPECT_EQ(steps.windows, (std::vector<Interval>{{200'000, 700'000}}));
}

TEST(Steps, OfNothingThereAreNone) {
  EXPECT_TRUE(find_steps(Trace{}).windows.empty());
  EXPECT_FALSE(find_steps(Trace{}).are_marked());
}

// The autocorrelation by its definition, for all periods.
TEST(Period, IsTheShortestThatRepeatsBest) {
  const auto names = [](std::string_view text) {
    return std::vector<uint32_t>(text.begin(), text.end());
  };
  EXPECT_EQ(period_of(names("abcabcabcabc")), 3);
  EXPECT_EQ(period_of(names("aaaaaaaa")), 1);
  EXPECT_EQ(period_of(names("abcdefgh")), 0);
  EXPECT_EQ(period_of(names("")), 0);
  EXPECT_EQ(period_of(names("aabbaabbaabbaabb")), 4) << "nothing comes once";
  EXPECT_EQ(period_of(names("abababcdabababcdabababcdabababcd")), 8);
  EXPECT_EQ(period_of(names("xxabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdy")), 4);
}

}  // namespace
}  // namespace ridge::doctor
