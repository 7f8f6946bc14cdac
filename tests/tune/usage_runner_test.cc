// Blocks of a program take joules and processor time besides: by counters that are made up.
#include "ridge/tune/pytorch/usage_runner.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

using attach::ProcessSample;
using attach::TreeSample;

class MadeUpRunner final : public Runner {
 public:
  Block run(int64_t steps) override {
    ran += steps;
    return {.seconds = 0.5};
  }
  int64_t ran = 0;
};

/// A process of that number that has used so many seconds of a processor, at that time.
TreeSample sample(double at_seconds, double cpu_seconds, pid_t pid = 7) {
  ProcessSample process{.pid = pid, .start_ticks = 1, .cpu_seconds = cpu_seconds};
  process.threads = {{.thread = pid, .cpu_seconds = cpu_seconds}};
  process.thread_count = 1;
  return {.at_ns = static_cast<int64_t>(1e9 * at_seconds), .processes = {process}, .cgroup = {}};
}

/// The counters give out these, one after the other, and each block takes a second.
UsageCounters counters(std::vector<std::optional<double>> joules, std::vector<TreeSample> samples) {
  return {.joules = [joules, next = size_t{0}]() mutable { return joules.at(next++); },
          .now = [next = int64_t{0}]() mutable { return 1'000'000'000 * next++; },
          .sample = [samples, next = size_t{0}]() mutable { return samples.at(next++); }};
}

TEST(UsageRunner, JoulesAreOfItsOwnStepsAlone) {
  MadeUpRunner program;
  UsageRunner usage(
      program,
      counters({900, 30, 900, 50}, {sample(0, 0), sample(1, 0.5), sample(5, 0.5), sample(6, 1.5)}));
  EXPECT_EQ(usage.joules_per_step(), std::nullopt);
  EXPECT_EQ(usage.idle_share(2), std::nullopt);
  EXPECT_EQ(usage.run(10).seconds, 0.5);
  usage.run(30);
  EXPECT_EQ(program.ran, 40);
  EXPECT_DOUBLE_EQ(*usage.joules_per_step(), 2);
  // In two seconds of two processors it used one and a half; the four between are another's.
  EXPECT_NEAR(*usage.idle_share(2), 1 - 1.5 / 4, 1e-9);
}

TEST(UsageRunner, WhatCannotBeReadIsLeftOut) {
  MadeUpRunner program;
  UsageRunner usage(program, counters({{}, {}, {}, 0.0}, {sample(0, 0), sample(1, 1), {}, {}}));
  usage.run(10);
  EXPECT_EQ(usage.joules_per_step(), std::nullopt);
  EXPECT_DOUBLE_EQ(*usage.idle_share(1), 0);
  usage.run(10);
  EXPECT_EQ(usage.joules_per_step(), std::nullopt) << "counters that stand still";
  EXPECT_DOUBLE_EQ(*usage.idle_share(1), 0);
}

TEST(UsageRunner, AStartWithinABlockIsNotWeighed) {
  MadeUpRunner program;
  UsageRunner usage(
      program,
      counters({0, 100, 0, 20},
               {sample(0, 0), sample(9, 8, 8), sample(10, 8, 8), sample(11, 8.5, 8)}));
  usage.run(10);
  EXPECT_EQ(usage.joules_per_step(), std::nullopt);
  usage.run(10);
  EXPECT_DOUBLE_EQ(*usage.joules_per_step(), 2);
  EXPECT_NEAR(*usage.idle_share(1), 0.5, 1e-9);
}

}  // namespace
}  // namespace ridge
