// Threads on CPUs of their own: the order in which they take them, the masks that the system then
// has for them, and that nothing started by a pinned thread is pinned with it.
#include "ridge/base/cpu/cpu_affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/settings.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

/// The calling thread's mask, asked of the system.
std::vector<int> mask_of_this_thread() {
  cpu_set_t mask;
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<int> cpus;
  for (size_t i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &mask)) cpus.push_back(static_cast<int>(i));
  return cpus;
}

/// A machine of these cores, in files as the kernel has them.
class FakeMachine {
 public:
  explicit FakeMachine(const std::map<int, std::string>& cores, const char* file) {
    for (const auto& [cpu, siblings] : cores) {
      const auto path =
          folder_ / ("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology");
      std::filesystem::create_directories(path);
      std::ofstream(path / file) << siblings << "\n";
    }
  }
  std::string root() const { return folder_.path().string(); }

 private:
  test::TempFolder folder_;
};

TEST(CoresFirst, SiblingsComeAfterEveryCore) {
  // Two ways in which kernels number hyper-threads, and the older name of the file.
  const FakeMachine far({{0, "0,4"}, {1, "1,5"}, {2, "2,6"}, {4, "0,4"}, {5, "1,5"}, {6, "2,6"}},
                        "core_cpus_list");
  EXPECT_EQ(cores_first({0, 1, 2, 4, 5, 6}, far.root()), (std::vector<int>{0, 1, 2, 4, 5, 6}));
  const FakeMachine near({{0, "0-1"}, {1, "0-1"}, {2, "2-3"}, {3, "2-3"}}, "thread_siblings_list");
  EXPECT_EQ(cores_first({0, 1, 2, 3}, near.root()), (std::vector<int>{0, 2, 1, 3}));
  // A core of which the process has only one CPU is represented by that CPU.
  EXPECT_EQ(cores_first({1, 2, 3}, near.root()), (std::vector<int>{1, 2, 3}));
  // Every CPU is a core where the system says nothing of siblings.
  EXPECT_EQ(cores_first({7, 3, 5}, near.root()), (std::vector<int>{7, 3, 5}));
  EXPECT_TRUE(cores_first({}, near.root()).empty());
}

class Pinning : public testing::Test {
 protected:
  ~Pinning() override {
    settings().set("cpu.pin", "false", Source::kFlag);
    set_thread_pinning(false);
    set_num_threads(threads_);
    EXPECT_EQ(mask_of_this_thread(), before_);
  }

  /// The masks of the threads that a job ran on. Each chunk waits for the others, so that each has
  /// a thread of its own.
  std::vector<std::vector<int>> masks_of_pool(int threads) {
    std::vector<std::vector<int>> masks;
    std::mutex mutex;
    std::atomic<int> inside{0};
    parallel_for(threads, 1, [&](int64_t, int64_t) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        masks.push_back(mask_of_this_thread());
      }
      ++inside;
      while (inside < threads) std::this_thread::yield();
    });
    return masks;
  }

  const int threads_ = num_threads();
  const std::vector<int> before_ = mask_of_this_thread();
};

TEST_F(Pinning, EveryThreadHasOneCpuOfItsOwn) {
  const auto cpus = static_cast<int>(before_.size());
  for (int threads : {1, std::min(2, cpus), std::min(4, cpus)}) {
    set_num_threads(threads);
    set_thread_pinning(true);
    std::set<int> taken;
    for (const std::vector<int>& mask : masks_of_pool(threads)) {
      ASSERT_EQ(mask.size(), 1u);
      taken.insert(mask[0]);
    }
    EXPECT_EQ(taken.size(), static_cast<size_t>(threads));
    EXPECT_EQ(allowed_cpus(), before_);  // the process may still use all of them
    set_thread_pinning(false);
    for (const std::vector<int>& mask : masks_of_pool(threads)) EXPECT_EQ(mask, before_);
  }
}

TEST_F(Pinning, MoreThreadsThanCpusAreNotPinned) {
  set_thread_pinning(true);
  set_num_threads(static_cast<int>(before_.size()) + 1);
  for (const auto& mask : masks_of_pool(static_cast<int>(before_.size()) + 1))
    EXPECT_EQ(mask, before_);
  set_num_threads(1);
  EXPECT_EQ(mask_of_this_thread().size(), 1u);
}

TEST_F(Pinning, IsASetting) {
  settings().set("threads", "0", Source::kFlag);
  settings().set("cpu.pin", "true", Source::kFlag);
  const int usable = usable_cpus();
  for (int round = 0; round < 2; ++round) {  // also when threads are pinned already
    apply_threads();
    EXPECT_EQ(mask_of_this_thread().size(), 1u);
    EXPECT_EQ(usable_cpus(), usable);
    EXPECT_EQ(num_threads(), usable);
  }
  settings().set("cpu.pin", "false", Source::kFlag);
  apply_threads();
  EXPECT_EQ(mask_of_this_thread(), before_);
}

TEST_F(Pinning, WhatAPinnedThreadStartsIsFree) {
  set_num_threads(1);
  set_thread_pinning(true);
  {
    const UnpinnedScope unpinned;
    std::thread([&] { EXPECT_EQ(mask_of_this_thread(), before_); }).join();
  }
  EXPECT_EQ(mask_of_this_thread().size(), 1u);
  // A thread that ends while pinned leaves no trace: the mask is read anew.
  set_thread_pinning(false);
  std::thread([&] { EXPECT_TRUE(pin_this_thread(before_.front())); }).join();
  EXPECT_EQ(allowed_cpus(), before_);
  EXPECT_FALSE(pin_this_thread(-1));
  EXPECT_FALSE(pin_this_thread(1 << 19));
}

}  // namespace
}  // namespace ridge
