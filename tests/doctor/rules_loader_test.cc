// R00 to R02: traces that show little, and loaders that are late.
#include <gtest/gtest.h>

#include "ridge/doctor/rules/rules.h"
#include "tests/doctor/made_run.h"

namespace ridge::doctor {
namespace {

TEST(R00, TellsWhatTheTraceLacks) {
  MadeRun run(3, 10);
  run.trace().dropped = 12;
  run.analysis().replay_error = 0.11;
  run.host(EventKind::kRuntime, "cudaGraphLaunch", 1, 0.1);
  const RuleOutput output = run.apply(r00_unfit);
  ASSERT_EQ(output.findings.size(), 1u);
  const Finding& finding = output.findings[0];
  EXPECT_EQ(finding.severity, Severity::kWarning);
  std::string all;
  for (const Evidence& evidence : finding.evidence) all += evidence.text + "\n";
  for (const char* part :
       {"lost 12 events", "steady steps: 3", "by 11 %", "graphs show no kernels"})
    EXPECT_NE(all.find(part), std::string::npos) << part << " in " << all;
  EXPECT_FALSE(finding.command.empty());
}

TEST(R00, GraphWithItsKernelsAndTenStepsIsFit) {
  MadeRun run(10, 10);
  const size_t call = run.host(EventKind::kRuntime, "cudaGraphLaunch", 1, 0.1);
  const size_t kernel = run.kernel("gemm", 2, 1);
  run.trace().correlation[call] = run.trace().correlation[kernel] = 5;
  run.analysis().replay_error = 0.02;
  EXPECT_EQ(reason(run.apply(r00_unfit)), "the trace is complete");
}

TEST(R00, LaunchesWithoutAnyDeviceWorkAreTold) {
  MadeRun run(10, 10);
  for (int step = 0; step < 10; ++step)
    run.host(EventKind::kRuntime, "cudaLaunchKernel", 10 * step + 1, 0.1);
  const RuleOutput output = run.apply(r00_unfit);
  ASSERT_EQ(output.findings.size(), 1u);
  EXPECT_NE(output.findings[0].evidence[0].text.find("no device work"), std::string::npos);
}

constexpr std::string_view kBesideIt =
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
constexpr std::string_view kOnThisThread =
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";

// Each step waits `wait_ms` of its 10 for data.
MadeRun starved_run(double wait_ms = 4, std::string_view loader = kBesideIt) {
  MadeRun run(10, 10);
  for (int step = 0; step < 10; ++step) {
    run.starve(HostCause::kLoader, 10 * step, wait_ms);
    run.host(EventKind::kRange, loader, 10 * step, wait_ms);
    run.kernel("gemm", 10 * step + wait_ms, 10 - wait_ms);
  }
  return run;
}

TEST(R01, DeviceThatWaitsForDataFires) {
  MadeRun run = starved_run();
  const RuleOutput output = run.apply(r01_input_starved);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  const Finding& finding = output.findings[0];
  EXPECT_NEAR(finding.cost_ms, 4, 1e-9);
  EXPECT_NEAR(finding.share, 0.4, 1e-9);
  EXPECT_NEAR(finding.ceiling, 10.0 / 6, 1e-9);
  EXPECT_EQ(finding.severity, Severity::kHigh);
  EXPECT_EQ(total_length(finding.at), ns(40));
  EXPECT_GT(finding.predicted.low, 1);
  EXPECT_LE(finding.predicted.high, finding.ceiling);
}

TEST(R01, LoaderBesideABusyDeviceIsFree) {
  MadeRun run(10, 10);
  for (int step = 0; step < 10; ++step) {
    run.host(EventKind::kRange, kOnThisThread, 10 * step, 8);
    run.kernel("gemm", 10 * step, 10);
  }
  EXPECT_EQ(reason(run.apply(r01_input_starved)),
            "0.0 % of a step waits for data with nothing to compute");
}

TEST(R01, FirstBatchOfAnEpochIsNoStarving) {
  MadeRun run(10, 10);
  run.starve(HostCause::kLoader, 0, 9);  // 9 % of the time, and in one step alone
  run.kernel("gemm", 9, 1);
  EXPECT_NE(reason(run.apply(r01_input_starved)).find("in few steps only"), std::string::npos);
}

TEST(R01, LoaderOnTheThreadThatTrainsIsToldSo) {
  const RuleOutput output = starved_run(2, kOnThisThread).apply(r01_input_starved);
  ASSERT_EQ(output.findings.size(), 1u);
  EXPECT_NE(output.findings[0].fix.find("on the thread that trains"), std::string::npos);
}

Finding starved_finding(const LoadedBatches& batches,
                        std::string_view loader = kOnThisThread,
                        const std::string& recorder = "kineto") {
  MadeRun run = starved_run(4, loader);
  run.trace().recorder = recorder;
  run.analysis().batches = batches;
  const RuleOutput output = run.apply(r01_input_starved);
  return output.findings.empty() ? Finding{} : output.findings[0];
}

TEST(R01, WorkersKeepTheBitsOnlyWhereSamplesAreKnownToDrawNoRandomNumbers) {
  const LoadedBatches same{
      .workers_class = SemanticClass::kBitIdentical, .reason = "", .make_ms = 40, .bytes = 1000};
  const LoadedBatches drawn{.workers_class = SemanticClass::kTrajectory,
                            .reason = "samples draw random numbers (torch)",
                            .make_ms = 40,
                            .bytes = 1000};
  for (std::string_view loader : {kOnThisThread, kBesideIt}) {
    EXPECT_EQ(starved_finding(same, loader).semantic_class, SemanticClass::kBitIdentical);
    EXPECT_EQ(starved_finding(same, loader).fix.find("random"), std::string::npos);
    const Finding other = starved_finding(drawn, loader);
    EXPECT_EQ(other.semantic_class, SemanticClass::kTrajectory);
    EXPECT_NE(other.fix.find("samples draw random numbers (torch)"), std::string::npos)
        << other.fix;
    EXPECT_NE(other.fix.find("another training run"), std::string::npos) << other.fix;
    // Nothing is known of the batches in another's trace.
    const Finding unknown = starved_finding({}, loader);
    EXPECT_EQ(unknown.semantic_class, SemanticClass::kTrajectory);
    EXPECT_NE(unknown.fix.find("where samples draw random numbers"), std::string::npos)
        << unknown.fix;
    // Workers of Ridge itself draw what its training thread would.
    EXPECT_EQ(starved_finding({}, loader, "ridge").semantic_class, SemanticClass::kBitIdentical);
  }
}

TEST(R01, BatchesThatAreMadeAsFastAsTheyAreHandedOverAreToBecomeLessWorkFirst) {
  const auto fix = [](double make_ms, int64_t bytes) {
    return starved_finding({.workers_class = SemanticClass::kBitIdentical,
                            .reason = "",
                            .make_ms = make_ms,
                            .bytes = bytes})
        .fix;
  };
  // 256 rows of a table, and 32 pictures that are decoded.
  const std::string rows = fix(2.3, 34'000), pictures = fix(160, 3'500'000);
  EXPECT_LT(rows.find("keep the samples in memory"), rows.find("workers")) << rows;
  EXPECT_NE(rows.find("gain little or lose"), std::string::npos) << rows;
  EXPECT_LT(pictures.find("let workers make them"), pictures.find("keep the samples in memory"))
      << pictures;
  // Samples that are drawn anew each time cannot be kept.
  const std::string drawn =
      starved_finding(
          {.workers_class = SemanticClass::kTrajectory, .reason = "", .make_ms = 2, .bytes = 1000})
          .fix;
  EXPECT_EQ(drawn.find("keep the samples in memory"), std::string::npos) << drawn;
}

// Two workers make samples all the time, and wait in each.
MadeRun workers_that_wait(std::string_view wait, double share) {
  MadeRun run = starved_run();
  for (int step = 0; step < 10; ++step)
    for (int64_t worker : {8, 9}) {
      run.host(EventKind::kRange, "sample", 10 * step, 10, worker);
      run.host(EventKind::kHostWait, wait, 10 * step + 1, 10 * share, worker);
    }
  return run;
}

TEST(R02, WorkersThatWaitForALockFire) {
  const RuleOutput output = workers_that_wait("futex", 0.6).apply(r02_loader_limit);
  ASSERT_EQ(output.findings.size(), 1u) << reason(output);
  EXPECT_NE(output.findings[0].title.find("locks"), std::string::npos);
  EXPECT_NEAR(output.findings[0].cost_ms, 4, 1e-9);
  EXPECT_EQ(workers_that_wait("pread64", 0.6).apply(r02_loader_limit).findings.at(0).title,
            "the loader's workers wait for files: more of them do not help");
}

TEST(R02, WorkersThatWorkDoNot) {
  EXPECT_EQ(reason(workers_that_wait("futex", 0.1).apply(r02_loader_limit)),
            "the loader's workers work: 10 % of their time is waiting");
}

TEST(R02, WaitingForWorkIsNoLimit) {
  // They wait for a lock between samples, which is where idle workers wait.
  MadeRun run = starved_run();
  for (int step = 0; step < 10; ++step) {
    run.host(EventKind::kRange, "sample", 10 * step, 2, 8);
    run.host(EventKind::kHostWait, "futex", 10 * step + 2, 8, 8);
  }
  EXPECT_EQ(reason(run.apply(r02_loader_limit)),
            "the loader's workers work: 0 % of their time is waiting");
}

}  // namespace
}  // namespace ridge::doctor
