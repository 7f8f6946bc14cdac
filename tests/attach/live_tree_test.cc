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
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/attach/samples/tree_memory.h"
#include "ridge/attach/samples/tree_samples.h"
#include "tests/attach/program_run.h"
#include "tests/support/succeeds_once.h"

namespace ridge::attach {
namespace {

using test::comes;
using test::succeeds_once;

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
  bool wait_for(int stage) const {
    return comes([&] { return shared_->stage >= stage; });
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

/// Computes until the calling thread has had a processor for so long.
void burn_for(std::chrono::milliseconds time) {
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  for (const auto start = used(); used() - start < time;) continue;
}

void sleep_ms(int64_t milliseconds) { ::usleep(static_cast<useconds_t>(1000 * milliseconds)); }

bool comes_to_rest(pid_t pid) {
  return comes([&] { return test::stat_of(pid).starts_with("S"); });
}

/// The last of some loads, the processor seconds of all of them, and bounds of these by another
/// clock: a sample takes a while itself, and on a busy machine a long one.
struct Measured {
  TreeLoad load;
  double seen = 0, least = 0, most = 0;
};

template <typename Wait, typename Used>
Measured measure(TreeSampler& sampler, Wait wait, Used used, int times = 1) {
  Measured measured;
  const double ahead = used();
  TreeSample before = sampler.take();
  const double from = used();
  for (int i = 0; i < times; ++i) {
    wait();
    measured.least = used() - from;
    TreeSample after = sampler.take();
    measured.load = load_between(before, after);
    measured.seen += measured.load.cpus * measured.load.seconds;
    before = std::move(after);
  }
  measured.most = used() - ahead;
  return measured;
}

/// ThreadSanitizer starts threads of its own in each process, which samples count too.
constexpr bool kHasForeignThreads =
#ifdef __SANITIZE_THREAD__
    true;
#else
    false;
#endif

bool has_schedstat() { return ::access("/proc/self/schedstat", R_OK) == 0; }

TEST(LiveTree, TwoThreadsThatBurn) {
  if (kHasForeignThreads) GTEST_SKIP() << "the number of threads is not the test's own";
  const Child child([](Shared& shared) {
    std::thread first(burn), second(burn);
    shared.stage = 1;
    ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  ASSERT_TRUE(comes_to_rest(child.pid()));  // its main thread
  TreeSampler sampler(child.pid());
  EXPECT_TRUE(succeeds_once([&] {
    const auto [load, seen, least, most] =
        measure(sampler, [] { sleep_ms(600); }, [&] { return child.cpu_seconds(); });
    EXPECT_EQ(load.processes, 1);
    EXPECT_EQ(load.threads, 3);
    EXPECT_GT(load.rss_bytes, 100 << 10);
    EXPECT_GT(seen, least - 0.1);
    EXPECT_LT(seen, most + 0.1);
    EXPECT_LT(load.main_cpu, 0.1);
    // Both want to run all the time, and on a machine with other work they wait for a processor. A
    // wait is counted when it is over.
    return !has_schedstat() ||
           (std::abs(load.cpus + load.queue - 2) < 0.3 && load.busy_threads == 2);
  }));
}

TEST(LiveTree, AMainThreadThatBurnsBesideOneThatSleeps) {
  const Child child([](Shared& shared) {
    std::thread sleeper([] { ::pause(); });
    shared.stage = 1;
    burn();
  });
  ASSERT_TRUE(child.wait_for(1));
  TreeSampler sampler(child.pid());
  EXPECT_TRUE(succeeds_once([&] {
    const TreeLoad load = measure(sampler, [] { sleep_ms(400); }, [] { return 0.0; }).load;
    EXPECT_NEAR(load.main_cpu, load.cpus, 0.05);
    const bool is_busy = !has_schedstat() || (std::abs(load.main_cpu + load.main_queue - 1) < 0.2 &&
                                              load.busy_threads == 1);
    return load.main_cpu > 0.05 && is_busy;
  }));
}

TEST(LiveTree, AProcessThatSleeps) {
  const Child child([](Shared& shared) {
    shared.stage = 1;
    ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  ASSERT_TRUE(comes_to_rest(child.pid()));
  TreeSampler sampler(child.pid());
  const TreeLoad load = measure(sampler, [] { sleep_ms(200); }, [] { return 0.0; }).load;
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
  if (kHasForeignThreads) GTEST_SKIP() << "the number of threads is not the test's own";
  const Child child([](Shared& shared) {
    std::thread worker([&] {
      while (shared.stage < 2) ::usleep(1000);
      burn_for(std::chrono::milliseconds(150));
      shared.stage = 3;
      ::pause();
    });
    const pid_t sleeper = ::fork();
    if (sleeper == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    } else {
      shared.grandchild = sleeper;
      shared.stage = 1;
    }
    for (;;) ::pause();
  });
  ASSERT_TRUE(child.wait_for(1));
  ASSERT_TRUE(comes_to_rest(child.pid()) && comes_to_rest(child.shared().grandchild));
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
              sample.processes.at(0).threads.at(1).cpu_seconds + 0.1);
    const TreeLoad load = load_between(sample, woken);
    EXPECT_GT(load.cpus * load.seconds, 0.1);
  }
  EXPECT_EQ(count_open_files(), files_before);
}

// Each child computes for a few milliseconds: no sample may see it, but its parent knows its time.
TEST(LiveTree, ChildrenTooShortToBeSeen) {
  const Child child([](Shared& shared) {
    for (;;) {
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        burn_for(std::chrono::milliseconds(8));
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
  // Growth beyond the time between two samples is not believed, and a stall makes a sample that
  // long.
  EXPECT_TRUE(succeeds_once([&] {
    const auto used = [&] { return child.shared().seconds + child.cpu_seconds(); };
    const auto wait = [&] {
      const double before = used();
      EXPECT_TRUE(comes([&] { return used() > before + 0.1; }));
    };
    const Measured all = measure(sampler, wait, used, 4);
    const double error = 0.1 + 0.15 * all.most;
    return all.least > 0.1 && all.seen > all.least - error && all.seen < all.most + error;
  }));
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
  return tree_peak_bytes(child.pid());
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
  EXPECT_EQ(tree_peak_bytes(gone), 0);
}

}  // namespace
}  // namespace ridge::attach
