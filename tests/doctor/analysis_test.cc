// Gaps, whom they are charged to, and sums that add up. Times in the cases are microseconds.
#include "ridge/doctor/analysis/analysis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "tests/doctor/made_trace.h"

namespace ridge::doctor {
namespace {

Steps window(double begin_us, double end_us) {
  return {.windows = {{static_cast<int64_t>(begin_us * 1000), static_cast<int64_t>(end_us * 1000)}},
          .source = "given"};
}

double us(double milliseconds) { return milliseconds * 1000; }

double by(const Analysis& analysis, HostCause cause) {
  return us(analysis.breakdown.starved_by[static_cast<size_t>(cause)]);
}

void expect_sums(const Breakdown& b) {
  EXPECT_NEAR(b.busy + b.idle, b.wall, 1e-9);
  EXPECT_NEAR(b.starved + b.launch + b.blocking + b.unknown, b.wall - b.compute, 1e-9);
  EXPECT_NEAR(
      std::accumulate(std::begin(b.starved_by), std::end(b.starved_by), 0.0), b.starved, 1e-9);
  EXPECT_LE(b.compute, b.busy + 1e-9);
}

// ---- one gap: a kernel ends at 100, and the next is launched at 1100 and begins at 1110 ----

class OneGap : public ::testing::Test {
 protected:
  OneGap() {
    made_.kernel("before", 0, {10, 90});
    made_.kernel("after", 1100, {1110, 90});
  }
  Analysis analysed() {
    const Analysis analysis = analyse(made_.done(), window(0, 1200));
    const Breakdown& b = analysis.breakdown;
    expect_sums(b);
    EXPECT_NEAR(us(b.compute), 180, 1e-6);
    EXPECT_NEAR(us(b.starved), 1000, 1e-6) << "from 100 to the call at 1100";
    EXPECT_NEAR(us(b.launch), 20, 1e-6) << "10 before each kernel";
    return analysis;
  }
  // All of what is starved; causes that are not named have no part in it.
  void expect_causes(const std::map<HostCause, double>& expected_us) {
    const Analysis analysis = analysed();
    for (size_t i = 0; i < kHostCauses; ++i) {
      const auto cause = static_cast<HostCause>(i);
      const auto expected = expected_us.find(cause);
      EXPECT_NEAR(by(analysis, cause), expected == expected_us.end() ? 0 : expected->second, 1e-6)
          << name_of(cause);
    }
  }
  MadeTrace made_;
};

TEST_F(OneGap, NobodyKnowsWhy) {
  const Analysis analysis = analysed();
  EXPECT_NEAR(by(analysis, HostCause::kUnknown), 1000, 1e-6);
  ASSERT_EQ(analysis.gaps.size(), 2u);
  EXPECT_EQ(analysis.gaps[1].at, (Interval{100'000, 1'110'000}));
  EXPECT_EQ(made_.trace().name_text(analysis.gaps[1].next), "after");
}

TEST_F(OneGap, OperatorsAndTheTimeBetweenThem) {
  made_.op("aten::add", {60, 240});
  made_.op("aten::mul", {350, 740});
  const Analysis analysis = analysed();
  EXPECT_NEAR(by(analysis, HostCause::kOperators), 1000, 1e-6);
  EXPECT_EQ(analysis.gaps[1].cause, HostCause::kOperators);
}

TEST_F(OneGap, Loader) {
  made_.range("ProfilerStep#3", {0, 1200});
  made_.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", {200, 700});
  made_.host(EventKind::kHostWait, "poll", {300, 500});
  made_.op("aten::to", {310, 100});
  made_.op("aten::add", {900, 190});
  const Analysis analysis = analysed();
  EXPECT_NEAR(by(analysis, HostCause::kLoader), 700, 1e-6) << "what is within it is its";
  EXPECT_NEAR(by(analysis, HostCause::kOperators), 200, 1e-6) << "190, and 10 to the launch";
  EXPECT_NEAR(by(analysis, HostCause::kUnknown), 100, 1e-6) << "195 before it: too long to issue";
  EXPECT_EQ(analysis.gaps[1].cause, HostCause::kLoader);
}

TEST_F(OneGap, ALoaderOfAnotherThreadIsFree) {
  made_.range("loader wait", {100, 1000}, 5);
  made_.op("aten::add", {60, 1030});
  EXPECT_NEAR(by(analysed(), HostCause::kLoader), 0, 1e-6);
}

TEST_F(OneGap, ACallThatBlockedUntilThen) {
  made_.call("cudaStreamSynchronize", {20, 85});
  made_.op("aten::add", {200, 890});
  const Analysis analysis = analysed();
  EXPECT_NEAR(by(analysis, HostCause::kSync), 1000, 1e-6) << "5 within it, and the way back";
}

TEST_F(OneGap, ACallThatReturnedWhileTheDeviceWorkedIsFree) {
  made_.call("cudaStreamSynchronize", {20, 40});
  made_.op("aten::add", {60, 1030});
  EXPECT_NEAR(by(analysed(), HostCause::kSync), 0, 1e-6);
}

TEST_F(OneGap, AfterTheWaitDataWereLate) {
  made_.call("cudaStreamSynchronize", {20, 85});
  made_.range("wait for batch", {200, 800});
  expect_causes({{HostCause::kLoader, 800}, {HostCause::kSync, 200}});
}

TEST_F(OneGap, Allocation) {
  made_.op("aten::empty", {60, 1030});
  made_.call("cudaMalloc", {300, 400});
  made_.call("cudaFree", {750, 50});
  expect_causes({{HostCause::kAllocation, 450}, {HostCause::kOperators, 550}});
}

TEST_F(OneGap, Module) {
  made_.op("aten::mm", {60, 1030});
  made_.call("cuLibraryLoadData", {300, 400});
  EXPECT_NEAR(by(analysed(), HostCause::kModule), 400, 1e-6);
}

TEST_F(OneGap, ModuleThatTheRecorderSaw) {
  made_.op("aten::mm", {60, 1030});
  made_.host(EventKind::kOverhead, "Runtime Triggered Module Loading", {300, 400}, 0);
  EXPECT_NEAR(by(analysed(), HostCause::kModule), 400, 1e-6);
}

TEST_F(OneGap, LargePageableCopy) {
  made_.op("aten::to", {60, 1030});
  const int64_t call = made_.call("cudaMemcpyAsync", {300, 400});
  const size_t copy = made_.device(EventKind::kCopy, "HtoD", {310, 380}, call);
  made_.builder().set(copy, Transfer{.bytes = 1 << 20, .from = MemoryKind::kPageable});
  const Analysis analysis = analysed();
  EXPECT_NEAR(by(analysis, HostCause::kPageable), 400, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.copy), 380, 1e-6);
}

TEST_F(OneGap, ASmallPageableCopyIsAWait) {
  made_.op("aten::item", {60, 1030});
  const int64_t call = made_.call("cudaMemcpyAsync", {90, 15});
  const size_t copy = made_.device(EventKind::kCopy, "DtoH", {101, 2}, call);
  made_.builder().set(copy, Transfer{.bytes = 4, .to = MemoryKind::kPageable});
  EXPECT_NEAR(by(analysed(), HostCause::kSync), 1000, 1e-6);
}

TEST_F(OneGap, Checkpoint) {
  made_.host(EventKind::kPython, "torch/serialization.py(944): save", {200, 600});
  made_.op("aten::copy_", {300, 100});
  made_.host(EventKind::kHostWait, "fsync", {900, 100});
  EXPECT_NEAR(by(analysed(), HostCause::kCheckpoint), 700, 1e-6);
}

TEST_F(OneGap, RecomputingActivationsIsNoCheckpoint) {
  made_.host(EventKind::kPython, "torch/utils/checkpoint.py(20): checkpoint", {200, 600});
  EXPECT_NEAR(by(analysed(), HostCause::kCheckpoint), 0, 1e-6);
}

TEST_F(OneGap, Interpreter) {
  made_.host(EventKind::kPython, "train.py(3): main", {50, 1050});
  made_.op("aten::add", {100, 300});
  made_.range("gc.collect", {600, 200});
  expect_causes({{HostCause::kInterpreter, 700}, {HostCause::kOperators, 300}});
}

TEST_F(OneGap, OffCpu) {
  made_.op("aten::add", {60, 1030});
  made_.host(EventKind::kHostWait, "pthread_mutex_lock", {300, 250});
  EXPECT_NEAR(by(analysed(), HostCause::kOffCpu), 250, 1e-6);
}

// The kernel before was launched by the thread of the backward pass, which the main one waits for.
TEST(Gaps, TheLauncherWaitedForAnotherThread) {
  MadeTrace made;
  made.device(EventKind::kKernel, "before", {10, 90}, made.call("cudaLaunchKernel", {0, 5}, 2));
  made.op("autograd::engine", {0, 800}, 2);
  made.host(EventKind::kHostWait, "pthread_cond_wait", {0, 1000});
  made.kernel("after", 1100, {1110, 90});
  const Analysis analysis = analyse(made.done(), window(0, 1200));
  EXPECT_NEAR(by(analysis, HostCause::kOperators), 700 + 100, 1e-6) << "of both threads";
  EXPECT_NEAR(by(analysis, HostCause::kOffCpu), 200, 1e-6);
}

// ---- work that is waited for ----

TEST(Gaps, ACopyOnTheSameStreamBlocks) {
  MadeTrace made;
  made.kernel("before", 0, {10, 90});
  made.copy("HtoD", 6, {102, 498});
  made.kernel("after", 20, {605, 95});
  const Analysis analysis = analyse(made.done(), window(10, 700));
  const Breakdown& b = analysis.breakdown;
  expect_sums(b);
  EXPECT_NEAR(us(b.starved), 0, 1e-6);
  EXPECT_NEAR(us(b.blocking), 498, 1e-6);
  EXPECT_NEAR(us(b.launch), 7, 1e-6) << "2 before the copy and 5 after it";
  EXPECT_NEAR(us(b.busy), 90 + 498 + 95, 1e-6);
  ASSERT_EQ(analysis.gaps.size(), 1u);
  ASSERT_EQ(analysis.gaps[0].blockers.size(), 1u);
  EXPECT_EQ(made.trace().name_text(analysis.gaps[0].blockers[0]), "HtoD");
}

TEST(Gaps, WhatTheCopyWaitedForBlocksToo) {
  MadeTrace made;
  made.kernel("before", 0, {10, 90});
  made.copy("HtoD", 6, {102, 298});
  made.copy("HtoD", 12, {403, 197});
  made.kernel("after", 20, {605, 95});
  const Breakdown b = analyse(made.done(), window(10, 700)).breakdown;
  EXPECT_NEAR(us(b.blocking), 298 + 197, 1e-6);
  EXPECT_NEAR(us(b.launch), 2 + 3 + 5, 1e-6);
}

struct Collective {
  MadeTrace made;
  size_t wait = 0;
  // A collective on stream 20, and a kernel on stream 7 that begins when it has ended.
  explicit Collective(double launched = 30) {
    made.kernel("before", 0, {10, 90});
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, {50, 750}, 20);
    made.kernel("after", launched, {std::max(805.0, launched + 5), 95});
  }
  // The record of it: the wait is of stream 7.
  void add_wait_record() {
    const int64_t recorded = made.call("cudaEventRecord", {16, 2});
    const int64_t waited = made.call("cudaStreamWaitEvent", {20, 2});
    wait = made.device(EventKind::kSynchronization, "Stream Wait Event", {20, 2}, waited);
    made.builder().set(wait,
                       Sync{.what = Sync::What::kStreamWaitsEvent,
                            .waits_on_stream = 20,
                            .waits_on_correlation = recorded});
  }
};

TEST(Gaps, AnEventOfACollectiveBlocks) {
  Collective collective;
  collective.add_wait_record();
  const Analysis analysis = analyse(collective.made.done(), window(10, 900));
  expect_sums(analysis.breakdown);
  EXPECT_NEAR(us(analysis.breakdown.blocking), 700, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.launch), 5, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.communication), 750, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.compute), 185, 1e-6);
}

// Recorders may leave out what an event was of: the wait's call says enough.
TEST(Gaps, ACallToWaitBetweenBothLaunchesTellsTheSame) {
  Collective collective;
  collective.made.call("cudaStreamWaitEvent", {20, 2});
  const Analysis analysis = analyse(collective.made.done(), window(10, 900));
  EXPECT_NEAR(us(analysis.breakdown.blocking), 700, 1e-6);
}

TEST(Gaps, WithoutAnyWaitNobodyKnows) {
  Collective collective;
  const Analysis analysis = analyse(collective.made.done(), window(10, 900));
  expect_sums(analysis.breakdown);
  EXPECT_NEAR(us(analysis.breakdown.unknown), 700, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.blocking), 0, 1e-6);
}

// It is exposed, and yet nothing waits for it: the host is late.
TEST(Gaps, ACollectiveBesideALateLaunchDoesNotBlock) {
  Collective collective(950);
  collective.add_wait_record();
  const Analysis analysis = analyse(collective.made.done(), window(10, 1050));
  expect_sums(analysis.breakdown);
  EXPECT_NEAR(us(analysis.breakdown.starved), 850, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.blocking), 0, 1e-6);
}

TEST(Gaps, ANodeOfAGraphWaitsForTheLastThatEndedBefore) {
  MadeTrace made;
  const int64_t call = made.call("cudaGraphLaunch", {0, 8});
  made.device(EventKind::kKernel, "first", {10, 90}, call, 7);
  made.device(EventKind::kCopy, "DtoD", {10, 490}, call, 20);
  made.device(EventKind::kKernel, "second", {510, 90}, call, 7);
  const Analysis analysis = analyse(made.done(), window(10, 600));
  EXPECT_NEAR(us(analysis.breakdown.blocking), 400, 1e-6);
  EXPECT_NEAR(us(analysis.breakdown.launch), 10, 1e-6);
}

TEST(Gaps, WithoutACallNobodyKnows) {
  MadeTrace made;
  made.device(EventKind::kKernel, "before", {10, 90}, -1);
  made.device(EventKind::kKernel, "after", {300, 100}, -1);
  const Analysis analysis = analyse(made.done(), window(10, 400));
  EXPECT_NEAR(us(analysis.breakdown.unknown), 200, 1e-6);
  EXPECT_EQ(analysis.launched_by, std::vector<size_t>(2, 2));
}

TEST(Gaps, AfterTheLastKernelTheHostIsLate) {
  MadeTrace made;
  made.kernel("only", 0, {10, 90});
  made.copy("DtoH", 6, {100, 50});
  made.range("torch.save", {100, 400});
  const Analysis analysis = analyse(made.done(), window(10, 500));
  expect_sums(analysis.breakdown);
  EXPECT_NEAR(us(analysis.breakdown.blocking), 50, 1e-6);
  EXPECT_NEAR(by(analysis, HostCause::kCheckpoint), 350, 1e-6);
  EXPECT_EQ(analysis.gaps.back().next, made.trace().size());
}

TEST(Gaps, AcrossTheEdgeOfTwoWindowsNothingChanges) {
  MadeTrace made;
  made.kernel("before", 0, {10, 90});
  made.call("cudaDeviceSynchronize", {20, 85});
  made.op("aten::add", {200, 890});
  made.kernel("after", 1100, {1110, 90});
  const Trace trace = made.done();
  const Analysis whole = analyse(trace, window(0, 1200));
  Steps two = window(0, 600);
  two.windows.push_back({600'000, 1'200'000});
  const Analysis halves = analyse(trace, two);
  expect_sums(halves.breakdown);
  EXPECT_EQ(halves.gaps.size(), whole.gaps.size() + 1);
  EXPECT_NEAR(2 * by(halves, HostCause::kSync), by(whole, HostCause::kSync), 1e-6);
  EXPECT_NEAR(2 * halves.breakdown.launch, whole.breakdown.launch, 1e-9);
}

TEST(Gaps, OfTheDeviceWithMostKernelTime) {
  MadeTrace made;
  made.kernel("small", 0, {10, 20});
  const uint32_t other = made.builder().lane({.process = 1, .thread = 7, .device = 1, .name = ""});
  made.builder().add(EventKind::kKernel, made.builder().text("large"), other, 10'000, 90'000);
  const Analysis analysis = analyse(made.done(), window(0, 100));
  EXPECT_EQ(analysis.device, 1);
  EXPECT_NEAR(us(analysis.breakdown.compute), 90, 1e-6);
}

// ---- programs on the CPU ----

TEST(OnTheCpu, WhatNothingComputesInIsStarved) {
  MadeTrace made;
  for (int step = 0; step < 5; ++step) {
    const double at = 1000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 1000});
    made.range("loader wait", {at, 300});
    made.range("sample", {at, 900}, 2);
    made.op("block/linear:matmul.1", {at + 310, 400});
    made.op("block/linear:add.1", {at + 500, 300}, 3);
    // Traces of older versions of Ridge have the second name.
    made.range(step % 2 == 0 ? "log_metrics" : "telling", {at + 800, 150});
  }
  const Analysis analysis = analyse(made.done());
  EXPECT_TRUE(analysis.is_cpu_only);
  EXPECT_EQ(analysis.device, -1);
  EXPECT_EQ(analysis.steps.windows.size(), 5u);
  const Breakdown& b = analysis.breakdown;
  expect_sums(b);
  EXPECT_NEAR(us(b.wall), 1000, 1e-6);
  EXPECT_NEAR(us(b.compute), 490, 1e-6) << "310 to 800, of two threads";
  EXPECT_NEAR(b.busy, b.compute, 1e-9);
  EXPECT_NEAR(us(b.starved), 510, 1e-6);
  EXPECT_NEAR(by(analysis, HostCause::kLoader), 300, 1e-6);
  EXPECT_NEAR(by(analysis, HostCause::kCheckpoint), 150, 1e-6);
}

TEST(OnTheCpu, OperatorsThatFetchDataDoNotCompute) {
  MadeTrace made;
  made.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", {0, 600});
  made.op("aten::stack", {100, 400});
  made.op("aten::mm", {600, 400});
  const Analysis analysis = analyse(made.done(), window(0, 1000));
  EXPECT_NEAR(us(analysis.breakdown.compute), 400, 1e-6);
  EXPECT_NEAR(by(analysis, HostCause::kLoader), 600, 1e-6);
}

TEST(Analysis, OfNothing) {
  const Analysis analysis = analyse(Trace{});
  EXPECT_TRUE(analysis.is_cpu_only);
  EXPECT_EQ(analysis.breakdown.wall, 0);
  EXPECT_TRUE(analysis.gaps.empty());
}

TEST(Analysis, CommunicationByName) {
  for (const char* name : {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",
                           "void rcclGenericKernel<1, false>",
                           "nvshmemi_transfer_kernel"})
    EXPECT_TRUE(is_communication(name)) << name;
  for (const char* name : {"ampere_sgemm_32x32_sliced1x4_tn",
                           "void at::native::reduce_kernel<512, 1>",
                           "void at::native::_scatter_gather_elementwise_kernel<128, 8>"})
    EXPECT_FALSE(is_communication(name)) << name;
}

// ---- properties ----

// A program with three streams and two threads.
Trace random_trace(uint32_t seed, int64_t scale, bool shuffled) {
  std::mt19937 random(seed);
  const auto pick = [&random](int64_t below) { return static_cast<int64_t>(random() % below); };
  struct Row {
    EventKind kind;
    std::string name;
    Lane lane;
    int64_t start, length, correlation;
  };
  std::vector<Row> rows;
  const auto add = [&rows, scale](
                       EventKind kind, std::string name, Lane lane, Interval at, int64_t c) {
    rows.push_back({kind, std::move(name), lane, at.begin * scale, at.length() * scale, c});
  };
  const auto host = [](int64_t thread) {
    return Lane{.process = 1, .thread = thread, .device = -1, .name = ""};
  };
  int64_t now = 0;
  std::map<int64_t, int64_t> free_at;
  for (int64_t i = 1; i <= 120; ++i) {
    const int64_t thread = pick(4) == 0 ? 2 : 1, stream = 7 + pick(3), kind = pick(10);
    const int64_t before = now;
    now += 1 + pick(60'000);
    constexpr const char* kDoing[] = {
        "aten::mm", "loader wait", "cudaMalloc", "cudaStreamSynchronize", "gc.collect", "cudaFree"};
    const char* doing = kDoing[pick(6)];
    const bool is_call = std::string_view(doing).starts_with("cuda");
    add(is_call ? EventKind::kRuntime : EventKind::kOperator,
        doing,
        host(thread),
        {before + pick(now - before), now},
        is_call ? 1000 + i : -1);
    add(EventKind::kRuntime, "cudaLaunchKernel", host(thread), {now, now + 1 + pick(6000)}, i);
    const int64_t start = std::max(now + pick(20'000), free_at[stream]), length = pick(80'000);
    free_at[stream] = start + length;
    const EventKind device = kind == 0   ? EventKind::kCopy
                             : kind == 1 ? EventKind::kSet
                                         : EventKind::kKernel;
    add(device,
        kind == 2 ? "ncclDevKernel" : "k" + std::to_string(kind),
        Lane{.process = 0, .thread = stream, .device = 0, .name = ""},
        {start, start + length},
        pick(20) == 0 ? -1 : i);
    now += 6000;
  }
  if (shuffled) std::shuffle(rows.begin(), rows.end(), random);
  Trace trace;
  TraceBuilder builder(trace);
  for (const Row& row : rows) {
    const size_t at = builder.add(
        row.kind, builder.text(row.name), builder.lane(row.lane), row.start, row.length);
    builder.set_correlation(at, row.correlation);
  }
  trace.sort();
  return trace;
}

Steps random_windows(uint32_t seed, int64_t scale) {
  std::mt19937 random(seed + 77);
  Steps steps{.windows = {}, .source = "given"};
  int64_t at = static_cast<int64_t>(random() % 200'000);
  for (int i = 0; i < 6; ++i) {
    const int64_t begin = at + static_cast<int64_t>(random() % 3) * 10'000;
    at = begin + 1 + static_cast<int64_t>(random() % 900'000);
    steps.windows.push_back({begin * scale, at * scale});
  }
  return steps;
}

TEST(RandomTraces, AllTimeIsChargedOnce) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Steps steps = random_windows(seed, 1);
    const Analysis analysis = analyse(random_trace(seed, 1, false), steps);
    const double most = static_cast<double>(steps.windows.size());
    const Breakdown& b = analysis.breakdown;
    EXPECT_NEAR(b.starved + b.launch + b.blocking + b.unknown, b.wall - b.compute, 1e-6 / most);
    EXPECT_NEAR(b.busy + b.idle, b.wall, 1e-6 / most);
    int64_t end = INT64_MIN;
    for (const Gap& gap : analysis.gaps) {
      EXPECT_LE(end, gap.at.begin);
      end = gap.at.end;
      EXPECT_EQ(gap.starved_ns + gap.launch_ns + gap.blocking_ns + gap.unknown_ns, gap.at.length());
      EXPECT_EQ(std::accumulate(gap.by_cause_ns, gap.by_cause_ns + kHostCauses, int64_t{0}),
                gap.starved_ns);
      EXPECT_TRUE((gap.blocking_ns > 0) == !gap.blockers.empty());
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(RandomTraces, TheOrderOfRowsIsNothing) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Analysis a = analyse(random_trace(seed, 1, false), random_windows(seed, 1));
    const Analysis b = analyse(random_trace(seed, 1, true), random_windows(seed, 1));
    EXPECT_EQ(a.launched_by, b.launched_by);
    ASSERT_EQ(a.gaps.size(), b.gaps.size());
    for (size_t i = 0; i < a.gaps.size(); ++i) {
      EXPECT_EQ(a.gaps[i].next, b.gaps[i].next);
      EXPECT_EQ(a.gaps[i].cause, b.gaps[i].cause);
      EXPECT_EQ(a.gaps[i].blockers, b.gaps[i].blockers);
    }
    EXPECT_EQ(a.breakdown.starved, b.breakdown.starved);
    EXPECT_EQ(a.breakdown.unknown, b.breakdown.unknown);
  }
}

// A device's time to begin a kernel does not scale with a program: only the sum of launch and
// unknown does.
TEST(RandomTraces, TimesScale) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Breakdown a = analyse(random_trace(seed, 1, false), random_windows(seed, 1)).breakdown;
    const Breakdown b = analyse(random_trace(seed, 5, false), random_windows(seed, 5)).breakdown;
    EXPECT_NEAR(5 * a.wall, b.wall, 1e-6);
    EXPECT_NEAR(5 * a.busy, b.busy, 1e-6);
    EXPECT_NEAR(5 * a.compute, b.compute, 1e-6);
    EXPECT_NEAR(5 * a.copy, b.copy, 1e-6);
    EXPECT_NEAR(5 * a.communication, b.communication, 1e-6);
    EXPECT_NEAR(5 * a.starved, b.starved, 1e-6);
    EXPECT_NEAR(5 * a.blocking, b.blocking, 1e-6);
    EXPECT_NEAR(5 * (a.launch + a.unknown), b.launch + b.unknown, 1e-6);
  }
}

}  // namespace
}  // namespace ridge::doctor
