// How runs are timed, on a clock of their own.
#include "ridge/tune/onnx/latency_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ridge/cli/bench/bench_model.h"
#include "ridge/cli/bench/bench_report.h"

namespace ridge::test {
namespace {

using testing::DoubleEq;
using testing::Each;

int64_t clock_ns = 0;
int64_t read_clock() { return clock_ns; }

std::string order;  // who ran, run by run

CallRunner taking(int64_t ns, char name) {
  return {[ns, name] {
            clock_ns += ns;
            order += name;
          },
          read_clock};
}

class TimedRuns : public testing::Test {
 protected:
  TimedRuns() {
    clock_ns = 0;
    order.clear();
  }
};

TEST_F(TimedRuns, AloneUntilTheTimeIsOver) {
  CallRunner runner = taking(10'000'000, 'a');
  const std::vector<double> runs = time_alone(runner, 1, read_clock);
  EXPECT_EQ(runs.size(), 100u);
  EXPECT_THAT(runs, Each(DoubleEq(0.01)));
  EXPECT_EQ(order.size(), 102u);  // two warm it up
}

TEST_F(TimedRuns, AloneAtLeastSoOften) {
  CallRunner runner = taking(10'000'000'000, 'a');
  EXPECT_EQ(std::ssize(time_alone(runner, 1, read_clock)), kLeastRuns);
}

TEST_F(TimedRuns, InTurnTheRatioIsThatOfTheTimes) {
  CallRunner before = taking(15'000'000, 'b'), after = taking(10'000'000, 'a');
  const PairedRuns both = time_in_turn(before, after, 5, read_clock);
  EXPECT_NEAR(std::exp(both.trial.gain), 1.5, 1e-9);
  ASSERT_TRUE(both.trial.interval.has_value());
  EXPECT_NEAR(std::exp(both.trial.interval->low), 1.5, 0.01);
  EXPECT_THAT(both.before, Each(DoubleEq(0.015)));
  EXPECT_THAT(both.after, Each(DoubleEq(0.01)));
  // Each pair has two blocks of both, of as many runs; those that warm a block up are not counted.
  const size_t pairs = both.trial.pairs.size();
  EXPECT_EQ(both.before.size(), 2 * pairs * static_cast<size_t>(both.trial.steps));
  EXPECT_EQ(both.after.size(), both.before.size());
  EXPECT_GE(clock_ns, 5'000'000'000);
  EXPECT_LT(clock_ns, 6'000'000'000);
  EXPECT_NE(order.find("ab"), order.npos);
  EXPECT_NE(order.find("ba"), order.npos);
}

TEST_F(TimedRuns, InTurnUntilThereIsAnInterval) {
  CallRunner before = taking(2'000'000'000, 'b'), after = taking(4'000'000'000, 'a');
  const PairedRuns both = time_in_turn(before, after, 1, read_clock);
  EXPECT_TRUE(both.trial.interval.has_value());
  EXPECT_NEAR(std::exp(both.trial.gain), 0.5, 1e-9);
  EXPECT_LE(both.trial.pairs.size(), 12u);
}

TEST_F(TimedRuns, InTurnForNoLongerThanAskedFor) {
  CallRunner before = taking(1'000, 'b'), after = taking(2'000, 'a');
  const PairedRuns both = time_in_turn(before, after, 0.01, read_clock);
  EXPECT_TRUE(both.trial.interval.has_value());
  EXPECT_LT(clock_ns, 20'000'000);
}

TEST(Latency, IsMedianAndNinetyNinthPercentile) {
  std::vector<double> seconds;
  for (int i = 0; i <= 100; ++i) seconds.push_back(0.001 * i);
  const Latency latency = latency_of(seconds);
  EXPECT_EQ(latency.runs, 101);
  EXPECT_DOUBLE_EQ(latency.median_ms, 50);
  EXPECT_DOUBLE_EQ(latency.p99_ms, 99);
}

Tensor floats(const std::vector<float>& values) {
  Tensor tensor({DType::kF32, {std::ssize(values)}});
  std::copy(values.begin(), values.end(), tensor.span<float>().begin());
  return tensor;
}

TEST(OutputDifference, IsOverTheLargestMagnitudeOfEachOutput) {
  EXPECT_EQ(output_difference({floats({1, 2}), floats({0})}, {floats({1, 2}), floats({0})}), 0);
  EXPECT_DOUBLE_EQ(
      output_difference({floats({1, 2}), floats({10})}, {floats({1, -4}), floats({8})}), 1.5);
  const float nan = std::nanf(""), infinity = INFINITY;
  EXPECT_EQ(output_difference({floats({nan, infinity, 1})}, {floats({nan, infinity, 1})}), 0);
  EXPECT_TRUE(std::isinf(output_difference({floats({nan, 1})}, {floats({2, 1})})));
  EXPECT_TRUE(std::isinf(output_difference({floats({2, 1})}, {floats({nan, 1})})));
}

}  // namespace
}  // namespace ridge::test
