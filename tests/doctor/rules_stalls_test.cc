// R24, R29, R30: late ranks, slow steps, and threads that wait for a processor.
#include <gtest/gtest.h>

#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/rules/straggler.h"
#include "tests/doctor/made_run.h"

namespace ridge::doctor {
namespace {

constexpr const char* kAllReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

// Ranks that take part in two collectives a step, each of the given length.
MadeRun rank_run(double collective_ms, int steps = 10, const char* name = kAllReduce) {
  MadeRun run(static_cast<size_t>(steps), 10);
  for (int step = 0; step < steps; ++step)
    for (double at : {2.0, 6.0}) run.kernel(name, 10 * step + at, collective_ms);
  run.trace().sort();
  return run;
}

RuleOutput compare(std::vector<MadeRun>& runs) {
  std::vector<RankView> ranks;
  for (MadeRun& run : runs)
    ranks.push_back({&run.trace(), &run.analysis(), 0, "rank " + std::to_string(ranks.size())});
  RuleOutput output;
  find_straggler(ranks, output);
  return output;
}

TEST(R24, RankThatComesLastFires) {
  std::vector<MadeRun> runs = {rank_run(1.5), rank_run(1.5), rank_run(0.5)};
  const RuleOutput output = compare(runs);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_EQ(output.findings[0].title, "all wait for rank 2");
  EXPECT_NEAR(output.findings[0].cost_ms, 2, 1e-9);  // two collectives, 1 ms each
  EXPECT_EQ(output.findings[0].severity, Severity::kHigh);
  EXPECT_EQ(total_length(output.findings[0].at), ns(20));
}

TEST(R24, RanksThatTakeTurnsDoNot) {
  std::vector<MadeRun> runs(3, MadeRun(12, 10));
  for (int step = 0; step < 12; ++step)
    for (size_t rank = 0; rank < 3; ++rank)
      runs[rank].kernel(kAllReduce, 10 * step + 1, static_cast<size_t>(step) % 3 == rank ? 1 : 3);
  for (MadeRun& run : runs) run.trace().sort();
  EXPECT_NE(reason(compare(runs)).find("no rank is late as a rule"), std::string::npos);
}

TEST(R24, StagesOfAPipelineAreNoStragglers) {
  std::vector<MadeRun> runs = {rank_run(3, 10, "ncclDevKernel_SendRecv"),
                               rank_run(1, 10, "ncclDevKernel_SendRecv")};
  EXPECT_EQ(reason(compare(runs)), "0 collectives are too few to compare ranks by");
  std::vector<MadeRun> roles = {rank_run(3), rank_run(1)};
  for (int step = 0; step < 10; ++step) roles[1].kernel(kAllReduce, 10 * step + 8, 1);
  roles[1].trace().sort();
  EXPECT_NE(reason(compare(roles)).find("different roles"), std::string::npos);
}

TEST(R24, OneRankAloneSaysNothing) {
  EXPECT_NE(reason(rank_run(1).apply(r24_straggler)).find("one rank alone"), std::string::npos);
}

TEST(R24, DevicesOfOneTraceAreRanks) {
  MadeRun run(10, 10);
  for (int step = 0; step < 10; ++step) {
    run.kernel(kAllReduce, 10 * step + 2, 3, 0);
    run.kernel(kAllReduce, 10 * step + 4, 1, 1);
  }
  const RuleOutput output = run.apply(r24_straggler);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_EQ(output.findings[0].title, "all wait for device 1");
}

// 24 steps of about 10 ms, of which those in `slow` take 20.
MadeRun stalling_run(const std::vector<size_t>& slow, const char* name = "save_checkpoint") {
  std::vector<double> times;
  for (size_t i = 0; i < 24; ++i) times.push_back(10 + 0.01 * static_cast<double>(i % 3));
  for (size_t i : slow) times[i] = 20;
  MadeRun run(times);
  double at = 0;
  for (size_t i = 0; i < 24; at += times[i++]) {
    run.host(EventKind::kRange, "ProfilerStep#1", at, times[i]);
    run.host(EventKind::kOperator, "aten::mm", at + 1, 5);
    run.kernel("gemm", at + 1, 8);
    if (times[i] == 20) {
      run.host(EventKind::kRange, "callbacks", at + 9, 10.5);
      run.host(EventKind::kRange, name, at + 9.2, 10);
    }
  }
  return run;
}

TEST(R29, CheckpointsFireWithTheirPeriod) {
  const RuleOutput output = stalling_run({5, 11, 17, 23}).apply(r29_periodic_stalls);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  const Finding& finding = output.findings[0];
  EXPECT_EQ(finding.title, "a step stalls: each 6 steps");
  EXPECT_NEAR(finding.cost_ms, 4 * 10.0 / 24, 0.01);
  EXPECT_NE(finding.evidence.at(1).text.find("'save_checkpoint'"), std::string::npos)
      << finding.evidence.at(1).text;
  EXPECT_NE(finding.fix.find("checkpoints from a thread"), std::string::npos);
  EXPECT_EQ(total_length(finding.at), 4 * ns(10));
}

TEST(R29, StallsThatNothingExplainsAreTrustedLess) {
  std::vector<double> times(24, 10);
  for (size_t i : {3, 9, 20}) times[i] = 20;
  const RuleOutput output = MadeRun(times).apply(r29_periodic_stalls);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_EQ(output.findings[0].title, "a step stalls: 3 of 24 steps");
  EXPECT_LE(output.findings[0].confidence, 0.5);
}

TEST(R29, SameWorkThatTakesLongerIsNotToBeMoved) {
  std::vector<double> times(24, 10);
  for (size_t i : {3, 9, 20}) times[i] = 20;
  MadeRun run(times);
  double at = 0;
  for (double ms : times) {
    run.host(EventKind::kOperator, "aten::mm", at + 0.5, ms - 1);
    at += ms;
  }
  const RuleOutput output = run.apply(r29_periodic_stalls);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_TRUE(output.findings[0].fix.starts_with("the same work takes longer"));
}

TEST(R29, EndOfAnEpochIsNoPeriod) {
  EXPECT_EQ(reason(stalling_run({23}).apply(r29_periodic_stalls)),
            "one step alone is slow: too few to call it periodic");
}

TEST(R29, StepsOfManyLengthsAreNoStalls) {
  std::vector<double> times;
  for (int i = 0; i < 24; ++i) times.push_back(10 + i % 7);
  EXPECT_EQ(reason(MadeRun(times).apply(r29_periodic_stalls)), "all steps take about as long");
  times.assign(24, 10);
  for (size_t i = 0; i < 24; i += 2) times[i] = 13;  // two kinds of steps, turn by turn
  EXPECT_EQ(reason(MadeRun(times).apply(r29_periodic_stalls)).find("fired"), std::string::npos);
}

TEST(R30, ThreadThatWaitsForAProcessorFires) {
  MadeRun run(10, 10);
  run.analysis().is_cpu_only = true;
  run.analysis().device = -1;
  for (int step = 0; step < 10; ++step) {
    run.host(EventKind::kOperator, "aten::mm", 10 * step, 9);
    run.host(EventKind::kHostWait, "runnable", 10 * step + 2, 2);
  }
  const RuleOutput output = run.apply(r30_cpu_contention);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_NEAR(output.findings[0].cost_ms, 2, 1e-9);
  EXPECT_EQ(output.findings[0].severity, Severity::kHigh);
}

TEST(R30, WaitingBesideABusyDeviceIsFree) {
  MadeRun run(10, 10);
  run.analysis().launching_lane = 0;
  for (int step = 0; step < 10; ++step) {
    run.host(EventKind::kHostWait, "runnable", 10 * step + 2, 5);
    run.kernel("gemm", 10 * step, 10);
  }
  EXPECT_EQ(reason(run.apply(r30_cpu_contention)),
            "its thread waits for a processor 0.0 % of a step");
}

TEST(R30, OtherThreadsMayWait) {
  MadeRun run(10, 10);
  run.analysis().is_cpu_only = true;
  for (int step = 0; step < 10; ++step) {
    run.host(EventKind::kOperator, "aten::mm", 10 * step, 9);
    run.host(EventKind::kHostWait, "runnable", 10 * step + 2, 5, 9);
  }
  EXPECT_EQ(reason(run.apply(r30_cpu_contention)).find("fired"), std::string::npos);
}

TEST(R30, BarriersOfParallelWorkFire) {
  MadeRun run(10, 10);
  run.analysis().is_cpu_only = true;
  for (int step = 0; step < 10; ++step) {
    run.host(EventKind::kOperator, "aten::mm", 10 * step, 9);
    run.host(EventKind::kHostWait, "gomp_barrier_wait", 10 * step + 7, 2);
  }
  const RuleOutput output = run.apply(r30_cpu_contention);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_EQ(output.findings[0].severity, Severity::kWarning);
}

}  // namespace
}  // namespace ridge::doctor
