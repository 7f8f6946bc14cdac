// The load between two samples with known numbers.
#include <gtest/gtest.h>

#include "ridge/attach/samples/tree_samples.h"

namespace ridge::attach {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

ThreadSample thread(pid_t number, double cpu, double queue = 0, char state = 'S') {
  return {.thread = number, .state = state, .cpu_seconds = cpu, .queue_seconds = queue};
}

ProcessSample process(pid_t pid, std::vector<ThreadSample> threads, pid_t parent = 1) {
  ProcessSample made;
  made.pid = pid;
  made.parent = parent;
  made.threads = std::move(threads);
  for (const ThreadSample& one : made.threads) made.cpu_seconds += one.cpu_seconds;
  made.thread_count = static_cast<int64_t>(made.threads.size());
  made.read_bytes = made.written_bytes = -1;
  return made;
}

TreeSample sample(int64_t at_ns, std::vector<ProcessSample> processes) {
  return {.at_ns = at_ns, .processes = std::move(processes), .cgroup = {}};
}

TEST(TreeLoad, SharesOfTheTimeBetween) {
  const TreeSample before = sample(
      5 * kSecond,
      {process(100, {thread(100, 10, 1), thread(101, 3)}), process(200, {thread(200, 7, 2)}, 100)});
  TreeSample after = sample(7 * kSecond,
                            {process(100, {thread(100, 11, 1.5), thread(101, 3.1)}),
                             process(200, {thread(200, 8.5, 2.5, 'R')}, 100)});
  after.processes[0].rss_bytes = 1000;
  after.processes[1].rss_bytes = 24;
  const TreeLoad load = load_between(before, after);
  EXPECT_DOUBLE_EQ(load.seconds, 2);
  EXPECT_NEAR(load.cpus, (1 + 0.1 + 1.5) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(load.main_cpu, 0.5);
  EXPECT_DOUBLE_EQ(load.main_queue, 0.25);
  EXPECT_DOUBLE_EQ(load.queue, 0.5);
  EXPECT_EQ(load.busy_threads, 2);  // 101 ran for a twentieth of the time
  EXPECT_EQ(load.processes, 2);
  EXPECT_EQ(load.threads, 3);
  EXPECT_EQ(load.rss_bytes, 1024);
  EXPECT_EQ(load.throttled, -1);
  EXPECT_EQ(load.read_bytes, -1);
  EXPECT_EQ(load.written_bytes, -1);
}

TEST(TreeLoad, ThreadsThatBeganMeanwhileCountWhole) {
  const TreeLoad load =
      load_between(sample(0, {process(100, {thread(100, 4)})}),
                   sample(kSecond,
                          {process(100, {thread(100, 4), thread(101, 0.25)}),
                           process(200, {thread(200, 0.5), thread(201, 0.125)}, 100)}));
  EXPECT_DOUBLE_EQ(load.cpus, 0.875);
  EXPECT_EQ(load.busy_threads, 3);
}

TEST(TreeLoad, WhoWasThereButUnseenDoesNotCountForItsPast) {
  const TreeLoad load = load_between(
      sample(0, {process(100, {thread(100, 4)})}),
      sample(kSecond, {process(100, {thread(100, 4)}), process(200, {thread(200, 3600)}, 100)}));
  EXPECT_EQ(load.cpus, 0);
}

TEST(TreeLoad, ThreadsThatEndedAreInTheSumOfTheirProcess) {
  TreeSample before = sample(0, {process(100, {thread(100, 4), thread(101, 1)})});
  TreeSample after = sample(kSecond, {process(100, {thread(100, 4.25)})});
  after.processes[0].cpu_seconds = before.processes[0].cpu_seconds + 0.75;
  EXPECT_DOUBLE_EQ(load_between(before, after).cpus, 0.75);
}

TEST(TreeLoad, CountersThatGoBackBeginAnew) {
  const TreeLoad load =
      load_between(sample(0, {process(100, {thread(100, 1), thread(101, 50)})}),
                   sample(kSecond, {process(100, {thread(100, 1.5), thread(101, 0.25)})}));
  EXPECT_DOUBLE_EQ(load.cpus, 0.75);  // the number 101 is used again
  const TreeLoad back = load_between(sample(kSecond, {process(100, {thread(100, 1)})}),
                                     sample(0, {process(100, {thread(100, 2)})}));
  EXPECT_EQ(back.cpus, 0);
  EXPECT_EQ(back.processes, 1);
}

TEST(TreeLoad, ANumberThatIsUsedAgainIsAnotherProcess) {
  ProcessSample old = process(200, {thread(200, 9)}, 100),
                young = process(200, {thread(200, 9.5)}, 100);
  old.start_ticks = 1;
  young.start_ticks = 2;
  const ProcessSample root = process(100, {thread(100, 1)});
  EXPECT_EQ(load_between(sample(0, {root, old}), sample(kSecond, {root, young})).cpus, 0);
  young.start_ticks = 1;
  EXPECT_DOUBLE_EQ(load_between(sample(0, {root, old}), sample(kSecond, {root, young})).cpus, 0.5);
}

// A child of 100 that is seen, ends, is not yet waited for, and then is: each second counts once.
TEST(TreeLoad, WhatChildrenUsedCountsOnce) {
  ProcessSample root = process(100, {thread(100, 0)});
  ProcessSample child = process(200, {thread(200, 30)}, 100);
  const TreeSample first = sample(0, {root, child});
  child.cpu_seconds = 30.5;
  child.threads.clear();
  child.thread_count = 0;
  const TreeSample second = sample(kSecond, {root, child});
  root.waited_seconds = 30.5;
  const TreeSample third = sample(2 * kSecond, {root});
  EXPECT_DOUBLE_EQ(load_between(first, second).cpus, 0.5);
  EXPECT_EQ(load_between(first, second).processes, 1);
  EXPECT_DOUBLE_EQ(load_between(second, third).cpus, 0);
  EXPECT_DOUBLE_EQ(load_between(first, third).cpus, 0.25);
  root.waited_seconds += 0.75;  // of children that were never seen
  EXPECT_DOUBLE_EQ(load_between(third, sample(3 * kSecond, {root})).cpus, 0.75);
}

TEST(TreeLoad, BytesAreASecond) {
  ProcessSample root = process(100, {thread(100, 0)}), child = process(200, {thread(200, 0)}, 100);
  root.read_bytes = 1000;
  root.written_bytes = 50;
  child.read_bytes = 4000;
  const TreeSample before = sample(0, {root, child});
  root.read_bytes = 3000;
  child.read_bytes = 5000;
  const TreeLoad load = load_between(before, sample(2 * kSecond, {root, child}));
  EXPECT_DOUBLE_EQ(load.read_bytes, 1500);
  EXPECT_DOUBLE_EQ(load.written_bytes, 0);
  // The child ended, and what it read is in the count of the root now.
  root.read_bytes = 3000 + 4600;
  EXPECT_DOUBLE_EQ(load_between(before, sample(2 * kSecond, {root})).read_bytes, 1300);
}

TEST(TreeLoad, WaitsForADisk) {
  const TreeSample idle = sample(0, {process(100, {thread(100, 1)})});
  const TreeSample disk = sample(kSecond, {process(100, {thread(100, 1, 0, 'D')})});
  EXPECT_DOUBLE_EQ(load_between(idle, disk).disk_wait, 0.5);
  EXPECT_DOUBLE_EQ(load_between(disk, disk).disk_wait, 1);
  EXPECT_DOUBLE_EQ(load_between(idle, idle).disk_wait, 0);
}

// 16 threads in a group that may use 2 processors: in each period of 100 ms they run for 12.5 ms on
// all 16, and are then held for 87.5 ms on all 16.
TEST(TreeLoad, ThrottledIsAShareOfTheTimeThatThereWasWork) {
  TreeSample before = sample(0, {process(100, {thread(100, 1)})}), after = before;
  after.at_ns = 10 * kSecond;
  before.cgroup = {.quota_cpus = 2, .throttled_seconds = 5, .used_seconds = 100};
  after.cgroup = {.quota_cpus = 2, .throttled_seconds = 5 + 16 * 8.75, .used_seconds = 120};
  EXPECT_DOUBLE_EQ(load_between(before, after).throttled, 0.875);
  after.cgroup.throttled_seconds = 5;
  EXPECT_EQ(load_between(before, after).throttled, 0);
  after.cgroup.throttled_seconds = -1;
  EXPECT_EQ(load_between(before, after).throttled, -1);
}

TEST(TreeLoad, ARootThatIsGone) {
  const TreeLoad load =
      load_between(sample(0, {process(100, {thread(100, 1)})}), sample(kSecond, {}));
  EXPECT_EQ(load.processes, 0);
  EXPECT_EQ(load.cpus, 0);
  EXPECT_EQ(load.main_cpu, 0);
}

}  // namespace
}  // namespace ridge::attach
