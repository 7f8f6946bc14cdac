// Predictions follow what the parts of a step cost, and are as sure as what they rest on.
#include "ridge/tune/prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ridge {
namespace {

// A step that computes for 10 ms on both of two CPUs, and loads for 6.
constexpr StepCosts kSerial{
    .step = 0.016, .compute = 0.010, .load = 0.006, .host = 0.001, .workers = 0, .threads = 2};

StepCosts with_workers(int64_t workers) {
  StepCosts costs = kSerial;
  costs.workers = workers;
  costs.step = modelled_step(costs, 2);
  return costs;
}

StepChange change_to(const StepCosts& costs) {
  return {
      .compute = {}, .load = {}, .workers_after = costs.workers, .threads_after = costs.threads};
}

TEST(Prediction, SerialStepsAddAndThreadsOverlap) {
  EXPECT_DOUBLE_EQ(modelled_step(kSerial, 2), 0.016);
  StepCosts overlapped = with_workers(1);
  // 26 ms of CPU time on two CPUs; on four the computation hides the loading.
  EXPECT_DOUBLE_EQ(modelled_step(overlapped, 2), 0.013);
  EXPECT_DOUBLE_EQ(modelled_step(overlapped, 4), 0.010);
  overlapped.load = 0.030;
  EXPECT_DOUBLE_EQ(modelled_step(overlapped, 4), 0.030);
}

TEST(Prediction, IsAnIntervalAroundTheModel) {
  const SpeedRange gain = predicted_speedup(kSerial, change_to(with_workers(1)), 2);
  EXPECT_LT(gain.low, 16.0 / 13);
  EXPECT_GT(gain.high, 16.0 / 13);
  EXPECT_LT(gain.high / gain.low, 1.5);
  const SpeedRange loss = predicted_speedup(with_workers(1), change_to(kSerial), 2);
  EXPECT_LT(loss.high, 1.0);
  const SpeedRange same = predicted_speedup(kSerial, change_to(kSerial), 2);
  EXPECT_LT(same.low, 1.0);
  EXPECT_GT(same.high, 1.0);
}

// Half the time to compute is 16 / 11 of the speed, whoever asks: only the noise of what was
// measured makes the range wider.
TEST(Prediction, WhatWasMeasuredOfBothIsAsSureAsItsNoise) {
  StepChange change = change_to(kSerial);
  change.compute.log_ratio = std::log(0.5);
  const SpeedRange sure = predicted_speedup(kSerial, change, 2);
  EXPECT_LT(sure.low, 16.0 / 11);
  EXPECT_GT(sure.high, 16.0 / 11);
  EXPECT_LT(sure.high / sure.low, 1.1);
  StepCosts noisy = kSerial;
  noisy.noise = 0.1;
  EXPECT_GT(predicted_speedup(noisy, change, 2).high / sure.high, 1.04);
  EXPECT_LT(predicted_speedup(noisy, change, 2).low / sure.low, 0.96);
  change.compute.error = 0.1;
  const SpeedRange unsure = predicted_speedup(kSerial, change, 2);
  EXPECT_LT(unsure.low, 16 / (6 + 5 * std::exp(0.1)));
  EXPECT_GT(unsure.high, 16 / (6 + 5 * std::exp(-0.1)));
  // A model that is off for the step as it is will be off for the next.
  StepCosts odd = kSerial;
  odd.step = 0.020;
  const SpeedRange doubtful = predicted_speedup(odd, change_to(kSerial), 2);
  EXPECT_GT(doubtful.high / doubtful.low, 1.15);
}

// Threads that share CPUs: by the model computing half as long gives 13 -> 8, but if loading took
// nothing from it, 10 -> 6.
TEST(Prediction, WhereThreadsShareCpusBothEndsAreIn) {
  StepChange change = change_to(with_workers(1));
  change.compute.log_ratio = std::log(0.5);
  const SpeedRange range = predicted_speedup(with_workers(1), change, 2);
  EXPECT_LE(range.low, 13.0 / 8);
  EXPECT_GE(range.high, 10.0 / 6);
}

TEST(Prediction, AChangeIsTheMiddleOfItsPairs) {
  const std::vector<double> before = {1, 2, 1}, after = {0.5, 1.2, 0.4};
  const PartChange three = part_change(before, after);
  EXPECT_DOUBLE_EQ(three.log_ratio, std::log(0.5));
  EXPECT_GT(three.error, std::log(0.6 / 0.5));
  EXPECT_LT(three.error, 2.5 * std::log(0.6 / 0.5));
  // Of seven, bursts say nothing.
  const std::vector<double> ones(7, 1.0);
  const PartChange seven = part_change(ones, std::vector<double>{9, 2, 2.2, 2, 2, 1.9, 0.1});
  EXPECT_DOUBLE_EQ(seven.log_ratio, std::log(2.0));
  EXPECT_GT(seven.error, 0.02);
  EXPECT_LT(seven.error, 0.1);
}

TEST(Prediction, ABlockIsLongWhereItsLastLoadOutlastsAStep) {
  StepCosts costs{.step = 0.01, .compute = 0.01, .load = 0.006, .workers = 0};
  EXPECT_EQ(least_block_steps(costs, 4), 1);  // loaded between steps
  costs.workers = 2;                          // a batch takes one thread 12 ms
  EXPECT_EQ(least_block_steps(costs, 4), 16);
  costs.load = 0.001;
  EXPECT_EQ(least_block_steps(costs, 4), 1);
}

TEST(Prediction, CeilingsAreWhatIsLeftWithoutAPart) {
  EXPECT_DOUBLE_EQ(loading_ceiling(kSerial), 1.6);
  EXPECT_DOUBLE_EQ(computing_ceiling(kSerial), 16.0 / 6);
  EXPECT_DOUBLE_EQ(computing_ceiling({.step = 1, .load = 1e-6}), kNoCeiling);
  // Noise may make a part dearer than the whole.
  StepCosts noisy = kSerial;
  noisy.compute = 0.020;
  EXPECT_DOUBLE_EQ(loading_ceiling(noisy), 1.0);
}

// 4 parts take 10 ms, 8 take 12: half a millisecond each, and 8 ms for 16 samples.
TEST(Prediction, TwoSizesTellWhatALaunchCosts) {
  const PartChange more{.log_ratio = std::log(1.2), .error = 0.01};
  const BatchCosts costs = batch_costs(0.010, more, 4, 8, 16);
  EXPECT_NEAR(costs.launch, 0.0005, 1e-9);
  EXPECT_NEAR(costs.launch_error, 0.00003, 1e-9);
  EXPECT_NEAR(costs.sample, 0.0005, 1e-9);
  EXPECT_NEAR(launching_ceiling(kSerial, costs, 4), 16 / (16 - 4 * 0.53), 1e-6);
  // Fewer at a time may be faster: then launches cost nothing, not less.
  const BatchCosts faster = batch_costs(0.010, {.log_ratio = -0.1, .error = 0}, 1, 2, 16);
  EXPECT_EQ(faster.launch, 0);
  EXPECT_EQ(launching_ceiling(kSerial, faster, 1), 1);
}

}  // namespace
}  // namespace ridge
