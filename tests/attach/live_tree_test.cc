// Samples of real processes, against what the system's clocks and the processes themselves say.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/attach/samples/tree_memory.h"
#include "ridge/attach/samples/tree_samples.h"
#include "ridge/base/clock.h"

namespace ridge::attach {
namespace {

/// Numbers that a child and the test share.
struct Shared {
  std::atomic<int> stage = 0;
  std::atomic<pid_t> grandchild = 0;
  std::atomic<double> seconds = 0;
};

/// A process that runs `body` and is gone with this object, or with the test.
class Child {
 public:
  explicit Child(const std::function<void(Shared&)>& body) {
    void* const page =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (page) Shared;
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(*shared_);
    ::_exit(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(shared_, sizeof(Shared));
  }

  pid_t pid() const { return pid_; }
  Shared& shared() const { return *shared_; }
  /// False: it did not come so far in ten seconds.
  bool wait_for(int stage) const {
    for (int i = 0; i < 10'000 && shared_->stage < stage; ++i) ::usleep(1000);
    return shared_->stage >= stage;
  }
  /// Processor time of all its threads, as the system's clock of it says.
  double cpu_seconds() const {
    clockid_t clock{};
    timespec time{};
    ::clock_getcpuclockid(pid_, &clock);
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  pid_t pid_ = -1;
  Shared* shared_ = nullptr;
};

void burn() {
  for (std::atomic<unsigned> count = 0;;) ++count;
}

void sleep_ms(int64_t milliseconds) { ::usleep(static_cast<useconds_t>(1000 * milliseconds)); }

bool has_schedstat() { return ::access("/proc/self/schedstat", R_OK) == 0; }

TEST(LiveTree, TwoThreadsThatBurn) {
  const Child child([](Shared& shared) {
    std::thread first(burn), second(burn);
    shared.stage = 1;
    ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  TreeSampler sampler(child.pid());
  sleep_ms(50);
  const double cpu_before = child.cpu_seconds();
  const TreeSample before = sampler.take();
  sleep_ms(600);
  const double cpu_after = child.cpu_seconds();
  const TreeSample after = sampler.take();
  const TreeLoad load = load_between(before, after);
  EXPECT_EQ(load.processes, 1);
  EXPECT_EQ(load.threads, 3);
  EXPECT_GT(load.rss_bytes, 100 << 10);
  EXPECT_NEAR(load.cpus * load.seconds, cpu_after - cpu_before, 0.15);
  EXPECT_LT(load.main_cpu, 0.1);
  if (!has_schedstat()) return;
  // Both want to run all the time, and on a machine with other work they wait for a processor.
  EXPECT_NEAR(load.cpus + load.queue, 2, 0.3);
  EXPECT_EQ(load.busy_threads, 2);
}

TEST(LiveTree, AMainThreadThatBurnsBesideOneThatSleeps) {
  const Child child([](Shared& shared) {
    std::thread sleeper([] { ::pause(); });
    shared.stage = 1;
    burn();
  });
  ASSERT_TRUE(child.wait_for(1));
  TreeSampler sampler(child.pid());
  const TreeSample before = sampler.take();
  sleep_ms(400);
  const TreeLoad load = load_between(before, sampler.take());
  EXPECT_NEAR(load.main_cpu, load.cpus, 0.05);
  EXPECT_GT(load.main_cpu, 0.05);
  if (has_schedstat()) {
    EXPECT_NEAR(load.main_cpu + load.main_queue, 1, 0.2);
    EXPECT_EQ(load.busy_threads, 1);
  }
}

TEST(LiveTree, AProcessThatSleeps) {
  const Child child([](Shared& shared) {
    shared.stage = 1;
    ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  TreeSampler sampler(child.pid());
  const TreeSample before = sampler.take();
  sleep_ms(200);
  const TreeLoad load = load_between(before, sampler.take());
  EXPECT_LT(load.cpus, 0.05);
  EXPECT_LT(load.main_cpu + load.main_queue, 0.05);
  EXPECT_EQ(load.busy_threads, 0);
  EXPECT_EQ(load.disk_wait, 0);
}

int64_t count_open_files() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += entry.path().empty() ? 0 : 1;
  return count;
}

// A sleeping process is not read again: its sample must be as if it had been, and end when it
// wakes.
TEST(LiveTree, AProcessThatWakesUp) {
  const Child child([](Shared& shared) {
    std::thread worker([&] {
      while (shared.stage < 2) ::usleep(1000);
      const int64_t start = now_ns();
      while (now_ns() - start < 150'000'000) continue;
      shared.stage = 3;
      ::pause();
    });
    const pid_t sleeper = ::fork();
    if (sleeper == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sleeper != 0) shared.stage = 1;
    for (;;) ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  sleep_ms(50);
  const int64_t files_before = count_open_files();
  {
    TreeSampler sampler(child.pid());
    TreeSample sample = sampler.take();
    for (int i = 0; i < 3; ++i) {
      sleep_ms(20);
      const TreeSample again = sampler.take(), fresh = TreeSampler(child.pid()).take();
      ASSERT_EQ(again.processes.size(), 2u);
      ASSERT_EQ(again.processes[0].threads.size(), 2u);
      const ProcessSample &sleeper = again.processes[1], &same = fresh.processes.at(1);
      EXPECT_EQ(sleeper.pid, same.pid);
      EXPECT_EQ(sleeper.parent, child.pid());
      EXPECT_EQ(sleeper.name, same.name);
      EXPECT_EQ(sleeper.rss_bytes, same.rss_bytes);
      EXPECT_EQ(sleeper.threads.at(0).cpu_seconds, same.threads.at(0).cpu_seconds);
      EXPECT_EQ(sleeper.threads.at(0).state, 'S');
    }
    sample = sampler.take();
    child.shared().stage = 2;
    ASSERT_TRUE(child.wait_for(3));
    const TreeSample woken = sampler.take();
    EXPECT_GT(woken.processes.at(0).threads.at(1).cpu_seconds,
              sample.processes.at(0).threads.at(1).cpu_seconds + 0.01);
    EXPECT_GT(load_between(sample, woken).cpus, 0.05);
  }
  EXPECT_EQ(count_open_files(), files_before);
}

// Each child lives for a few milliseconds: no sample may see it, but its parent knows its time.
TEST(LiveTree, ChildrenTooShortToBeSeen) {
  const Child child([](Shared& shared) {
    for (;;) {
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        const int64_t start = now_ns();
        while (now_ns() - start < 8'000'000) continue;
        ::_exit(0);
      }
      ::waitpid(grandchild, nullptr, 0);
      rusage usage{};
      ::getrusage(RUSAGE_CHILDREN, &usage);
      const timeval both = {usage.ru_utime.tv_sec + usage.ru_stime.tv_sec,
                            usage.ru_utime.tv_usec + usage.ru_stime.tv_usec};
      shared.seconds = static_cast<double>(both.tv_sec) + 1e-6 * static_cast<double>(both.tv_usec);
      shared.stage = 1;
    }
  });
  ASSERT_TRUE(child.wait_for(1));
  TreeSampler sampler(child.pid());
  const double used_before = child.shared().seconds + child.cpu_seconds();
  TreeSample before = sampler.take();
  double seen = 0;
  for (int i = 0; i < 4; ++i) {
    sleep_ms(200);
    TreeSample after = sampler.take();
    const TreeLoad load = load_between(before, after);
    seen += load.cpus * load.seconds;
    before = std::move(after);
  }
  const double used = child.shared().seconds + child.cpu_seconds() - used_before;
  EXPECT_GT(used, 0.1);
  EXPECT_NEAR(seen, used, 0.1 + 0.15 * used);
}

// The child's own child forks once more and ends: what remains belongs to another parent then.
TEST(LiveTree, WhatLeavesItsParentStays) {
  int life[2];  // closed with the test, whereupon the process that nobody waits for ends
  ASSERT_EQ(::pipe(life), 0);
  {
    const Child child([&](Shared& shared) {
      ::close(life[1]);
      const pid_t middle = ::fork();
      if (middle == 0) {
        const pid_t made = ::fork();
        if (made == 0) {
          ::setsid();
          char byte = 0;
          const ssize_t got = ::read(life[0], &byte, 1);
          ::_exit(static_cast<int>(got));
        }
        shared.grandchild = made;
        shared.stage = 1;
        while (shared.stage < 2) ::usleep(1000);
        ::_exit(0);
      }
      ::waitpid(middle, nullptr, 0);
      shared.stage = 3;
      ::pause();
    });
    ASSERT_TRUE(child.wait_for(1));
    TreeSampler sampler(child.pid());
    EXPECT_EQ(sampler.take().processes.size(), 3u);
    child.shared().stage = 2;
    ASSERT_TRUE(child.wait_for(3));
    const TreeSample sample = sampler.take();
    ASSERT_EQ(sample.processes.size(), 2u);
    EXPECT_EQ(sample.processes[0].pid, child.pid());
    EXPECT_EQ(sample.processes[1].pid, child.shared().grandchild);
    EXPECT_NE(sample.processes[1].parent, child.pid());
  }
  ::close(life[0]);
  ::close(life[1]);
}

TEST(LiveTree, AProcessThatEnds) {
  const Child child([](Shared& shared) {
    shared.stage = 1;
    while (shared.stage < 2) ::usleep(1000);
  });
  ASSERT_TRUE(child.wait_for(1));
  TreeSampler sampler(child.pid());
  const TreeSample before = sampler.take();
  EXPECT_EQ(before.processes.size(), 1u);
  child.shared().stage = 2;
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);
  const TreeSample after = sampler.take();  // it is a zombie until the test waits for it
  EXPECT_TRUE(after.processes.empty());
  EXPECT_EQ(load_between(before, after).processes, 0);
}

TEST(LiveTree, ProcessorsThatMayBeUsed) {
  EXPECT_GE(usable_cpus(), 1);
  const Child child([](Shared& shared) {
    cpu_set_t mask, one;
    ::sched_getaffinity(0, sizeof mask, &mask);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &mask)) CPU_SET(i, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    shared.stage = 1;
    ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  const pid_t ours = ::getpid(), none = -1, one = child.pid();
  const pid_t both[] = {one, ours}, gone[] = {none, one};
  EXPECT_EQ(usable_cpus({&one, 1}), 1);
  EXPECT_EQ(usable_cpus(both), usable_cpus());
  EXPECT_EQ(usable_cpus(gone), 1);
  EXPECT_EQ(usable_cpus({&none, 1}), usable_cpus());
}

// Memory of a program and of two processes that it forks once it holds `bytes`: pages that a parent
// filled before it forked count once.
int64_t memory_of_three(size_t bytes) {
  const Child child([bytes](Shared& shared) {
    void* const memory = ::mmap(
        nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) ::_exit(1);
    for (int i = 0; i < 2; ++i)
      if (::fork() == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ++shared.stage;
        ::pause();
      }
    ::pause();
  });
  EXPECT_TRUE(child.wait_for(2));
  return tree_memory_bytes(child.pid());
}

TEST(TreeMemory, PagesThatProcessesShareCountOnce) {
  constexpr int64_t kBytes = 64 << 20;
  // Under a sanitizer the processes hold hundreds of MiB besides.
  const int64_t bytes = memory_of_three(kBytes + 4096) - memory_of_three(4096);
  EXPECT_GE(bytes, kBytes / 2);
  EXPECT_LT(bytes, kBytes + kBytes / 2);
}

TEST(TreeMemory, OfNobodyThereIsNone) {
  pid_t gone = 0;
  {
    const Child child([](Shared&) {});
    gone = child.pid();
  }
  EXPECT_EQ(tree_memory_bytes(gone), 0);
}

}  // namespace
}  // namespace ridge::attach
