#include "ridge/base/cpu/parallel.h"

#include <gtest/gtest.h>
#include <immintrin.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ridge/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define RIDGE_TEST_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define RIDGE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RIDGE_TEST_ASAN 1
#elif __has_feature(thread_sanitizer)
#define RIDGE_TEST_TSAN 1
#endif
#endif

namespace {
std::atomic<int64_t> allocations{0};
}

#if !defined(RIDGE_TEST_ASAN) && !defined(RIDGE_TEST_TSAN)
#define RIDGE_TEST_COUNTS_ALLOCATIONS 1
void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace ridge {
namespace {

// Restores the number of threads that the test found.
class ParallelTest : public ::testing::Test {
 protected:
  ~ParallelTest() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

// A team whose threads come when they like: each starts with the task, and ends with it.
void run_on_new_threads(void (*task)(void*), void* context, unsigned threads) {
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(task, context);
  task(context);
  for (std::thread& other : others) other.join();
}

TEST_F(ParallelTest, ATeamRunsEveryIndexExactlyOnce) {
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    std::vector<int> hits(4099, 0);
    with_team(run_on_new_threads, [&] {
      for (int round = 0; round < 50; ++round)
        parallel_for(std::ssize(hits), 7, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
    });
    EXPECT_EQ(std::count(hits.begin(), hits.end(), 50), std::ssize(hits)) << threads;
  }
}

// Both threads of a team are in a job at once: each waits for the other inside of it.
TEST_F(ParallelTest, ATeamsThreadsAreTheWorkers) {
  set_num_threads(2);
  static std::set<std::thread::id> lent;
  static std::mutex mutex;
  const auto team = [](void (*task)(void*), void* context, unsigned threads) {
    EXPECT_EQ(threads, 2u);
    std::thread other([&] {
      lent.insert(std::this_thread::get_id());
      task(context);
    });
    task(context);
    other.join();
  };
  std::set<std::thread::id> seen;
  with_team(team, [&] {
    std::atomic<int> here{0};
    parallel_for(2, 1, [&](int64_t, int64_t) {
      ++here;
      while (here < 2) std::this_thread::yield();
      const std::lock_guard<std::mutex> lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  });
  lent.insert(std::this_thread::get_id());
  EXPECT_EQ(seen, lent);
}

TEST_F(ParallelTest, ATeamEndsBeforeAnErrorOfTheBody) {
  set_num_threads(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(with_team(run_on_new_threads,
                           [&] {
                             parallel_for(64, 1, [](int64_t begin, int64_t) {
                               if (begin == 40) throw std::runtime_error("stop");
                             });
                           }),
                 std::runtime_error);
  }
  std::atomic<int64_t> sum{0};  // the pool works as before
  parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
  EXPECT_EQ(sum, 4950);
}

// A team may give fewer threads than were asked for, and may be called from within itself.
TEST_F(ParallelTest, ATeamOfTheCallerAlone) {
  set_num_threads(4);
  const auto alone = [](void (*task)(void*), void* context, unsigned) { task(context); };
  int64_t sum = 0;
  std::mutex mutex;
  with_team(alone, [&] {
    with_team(alone, [&] {
      parallel_for(100, 1, [&](int64_t begin, int64_t) {
        const std::lock_guard<std::mutex> lock(mutex);
        sum += begin;
      });
    });
  });
  EXPECT_EQ(sum, 4950);
}

TEST_F(ParallelTest, EveryIndexExactlyOnce) {
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    for (int64_t n : {1, 2, 7, 64, 1000, 4099}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        std::vector<int> hits(static_cast<size_t>(n), 0);
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          EXPECT_EQ(end, std::min(begin + grain, n));
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), n)
            << threads << " " << n << " " << grain;
      }
    }
  }
}

TEST_F(ParallelTest, EmptyRangesDoNothing) {
  for (int64_t n : {int64_t{0}, int64_t{-1}, INT64_MIN})
    parallel_for(n, 1, [&](int64_t, int64_t) { FAIL(); });
  EXPECT_THROW(parallel_for(4, 0, [](int64_t, int64_t) {}), InternalError);
}

TEST_F(ParallelTest, RangesNearTheLargestIntegerDoNotOverflow) {
  set_num_threads(2);
  std::atomic<int64_t> covered{0}, calls{0};
  parallel_for(INT64_MAX, INT64_MAX / 2, [&](int64_t begin, int64_t end) {
    covered += end - begin;
    ++calls;
  });
  EXPECT_EQ(covered, INT64_MAX);
  EXPECT_EQ(calls, 3);
}

TEST_F(ParallelTest, WorkersReallyHelp) {
  set_num_threads(4);
  std::atomic<int> inside{0}, most{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  // Each of four chunks waits for the other three: only four threads can end this.
  parallel_for(4, 1, [&](int64_t, int64_t) {
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    while (most < 4 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(most, 4);
}

// Each chunk that begins a part waits for the others that do: no thread can have two of them.
TEST_F(ParallelTest, EachThreadBeginsWithItsOwnPart) {
  constexpr int kThreads = 4, kChunks = 42;
  set_num_threads(kThreads);
  std::map<int64_t, std::thread::id> begun[2];
  for (auto& threads : begun) {
    std::atomic<int> inside{0};
    std::mutex mutex;
    parallel_for(kChunks, 1, [&](int64_t chunk, int64_t) {
      // Parts of 11, 11, 10 and 10 chunks.
      if (chunk != 0 && chunk != 11 && chunk != 22 && chunk != 32) return;
      {
        const std::lock_guard lock(mutex);
        threads[chunk] = std::this_thread::get_id();
      }
      ++inside;
      while (inside < kThreads) std::this_thread::yield();
    });
  }
  EXPECT_EQ(begun[0].size(), kThreads);
  EXPECT_EQ(begun[0].at(0), std::this_thread::get_id());
  EXPECT_EQ(begun[0], begun[1]);
}

TEST_F(ParallelTest, LowestThrowingChunkWins) {
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    for (int round = 0; round < 200; ++round) {
      std::atomic<bool> later_begun{false};
      const auto body = [&](int64_t begin, int64_t) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
        if (begin == 3)  // both are to be under way, where there are threads for it
          while (!later_begun && std::chrono::steady_clock::now() < deadline)
            std::this_thread::yield();
        if (begin == 5) later_begun = true;
        // Sometimes the lower throws last, sometimes the higher.
        if (begin == (round % 2 ? 3 : 5))
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (begin == 3 || begin == 5 || begin > 20) throw std::runtime_error(std::to_string(begin));
      };
      try {
        parallel_for(64, 1, body);
        FAIL() << "nothing thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "3");
      }
    }
    std::atomic<int> calls{0};  // and the pool still works
    parallel_for(10, 1, [&](int64_t, int64_t) { ++calls; });
    EXPECT_EQ(calls, 10);
  }
}

TEST_F(ParallelTest, AThrowEndsTheJobEarly) {
  set_num_threads(3);
  std::atomic<int64_t> calls{0};
  // All of them would take an hour: however late the first throws, others are left.
  EXPECT_THROW(parallel_for(10'000'000,
                            1,
                            [&](int64_t begin, int64_t) {
                              ++calls;
                              if (begin == 0) throw std::runtime_error("first");
                              std::this_thread::sleep_for(std::chrono::milliseconds(1));
                            }),
               std::runtime_error);
  EXPECT_LT(calls, 10'000'000);
}

TEST_F(ParallelTest, NestedCallsRunInline) {
  set_num_threads(4);
  std::atomic<int> wrong_thread{0}, calls{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != outer) ++wrong_thread;
      ++calls;
    });
  });
  EXPECT_EQ(calls, 800);
  EXPECT_EQ(wrong_thread, 0);
}

TEST_F(ParallelTest, ResizingInsideABodyIsRefused) {
  set_num_threads(2);
  EXPECT_THROW(parallel_for(4, 1, [](int64_t, int64_t) { set_num_threads(3); }), InternalError);
  EXPECT_EQ(num_threads(), 2);
  EXPECT_THROW(set_num_threads(0), UserError);
  EXPECT_THROW(set_num_threads(1 << 20), UserError);
  EXPECT_EQ(num_threads(), 2);
}

TEST_F(ParallelTest, SeveralOuterThreadsAndResizes) {
  set_num_threads(3);
  std::vector<std::thread> outer;
  std::atomic<int64_t> total{0};
  for (int t = 0; t < 4; ++t) {
    outer.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        std::vector<int64_t> partial(50, 0);  // one slot a chunk: no two threads share one
        parallel_for(500, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) partial[static_cast<size_t>(begin / 10)] += i;
        });
        total += std::accumulate(partial.begin(), partial.end(), int64_t{0});
      }
    });
  }
  outer.emplace_back([] {
    for (int round = 0; round < 60; ++round) set_num_threads(1 + round % 5);
  });
  for (std::thread& thread : outer) thread.join();
  EXPECT_EQ(total, int64_t{4} * 300 * (499 * 500 / 2));
}

TEST_F(ParallelTest, ManySmallJobs) {
  set_num_threads(3);
  std::vector<int> data(96, 0);  // plain ints: ThreadSanitizer sees a missing edge between jobs
  for (int round = 0; round < 5000; ++round) {
    parallel_for(96, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++data[static_cast<size_t>((i + round) % 96)];
    });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // all asleep
  }
  EXPECT_EQ(data, std::vector<int>(96, 5000));
}

TEST_F(ParallelTest, WorkersComputeInTheCallersFloatMode) {
  set_num_threads(4);
  const unsigned before = _mm_getcsr();
  for (unsigned mode : {before | 0x8040u, before}) {  // with and without denormals as zero
    std::atomic<int> other{0};
    _mm_setcsr(mode);
    parallel_for(64, 1, [&](int64_t, int64_t) {
      if ((_mm_getcsr() & 0x8040u) != (mode & 0x8040u)) ++other;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
    _mm_setcsr(before);
    EXPECT_EQ(other, 0);
  }
}

TEST_F(ParallelTest, NoAllocationPerCall) {
#ifndef RIDGE_TEST_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "the sanitizer owns operator new";
#endif
  set_num_threads(3);
  std::atomic<int> begun{0};
  parallel_for(3, 1, [&](int64_t, int64_t) {  // starts the workers, and waits until they are up
    ++begun;
    while (begun < 3) std::this_thread::yield();
  });
  std::atomic<int64_t> sum{0};
  const auto body = [&](int64_t begin, int64_t end) { sum += end - begin; };
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) parallel_for(1000, 10, body);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 100 * 1000);
}

// -1 where the child was killed, by a signal or by us because it hangs.
int exit_code_of(pid_t child) {
  int status = 0;
  for (int hundredths = 0; hundredths < 3000; ++hundredths) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return -1;
}

TEST_F(ParallelTest, ForkedChildWorksAndExits) {
#ifdef RIDGE_TEST_TSAN
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts threads";
#endif
  set_num_threads(3);
  parallel_for(100, 1, [](int64_t, int64_t) {});
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> calls{0};
    parallel_for(100, 1, [&](int64_t, int64_t) { ++calls; });
    set_num_threads(2);
    parallel_for(100, 1, [&](int64_t, int64_t) { ++calls; });
    std::exit(calls == 200 ? 42 : 1);  // runs the exit handlers, which must not wait for anybody
  }
  EXPECT_EQ(exit_code_of(child), 42);
}

// The child inherits the lock of a job that nobody will end there.
TEST_F(ParallelTest, ForkWhileAnotherThreadRunsAJob) {
#ifdef RIDGE_TEST_TSAN
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts threads";
#endif
  set_num_threads(2);
  std::atomic<bool> running{false}, release{false};
  std::thread other([&] {
    parallel_for(2, 1, [&](int64_t, int64_t) {
      running = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!running) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> calls{0};
    set_num_threads(3);
    parallel_for(100, 1, [&](int64_t, int64_t) { ++calls; });
    std::exit(calls == 100 ? 44 : 1);
  }
  EXPECT_EQ(exit_code_of(child), 44);
  release = true;
  other.join();
}

TEST_F(ParallelTest, ExitWithinABodyDoesNotHang) {
#ifdef RIDGE_TEST_TSAN
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts threads";
#endif
  const pid_t child = fork();
  if (child == 0) {
    set_num_threads(3);
    parallel_for(100, 1, [](int64_t begin, int64_t) {
      if (begin == 50) std::exit(43);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
    std::exit(1);
  }
  EXPECT_EQ(exit_code_of(child), 43);
}

}  // namespace
}  // namespace ridge
