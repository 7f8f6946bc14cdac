#include "ridge/base/cpu/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "ridge/base/cpu/parallel.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A file system root of its own, with what a test writes there.
class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / ("ridge_cgroup_" + std::string(test->name()));
    fs::remove_all(root_);
  }
  ~CgroupTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double quota() const { return cgroup_cpu_quota(root_.string()); }

 private:
  fs::path root_;
};

TEST_F(CgroupTest, NoneWithoutFiles) { EXPECT_EQ(quota(), 0); }

TEST_F(CgroupTest, VersionTwo) {
  write("proc/self/cgroup", "0::/work/job\n");
  write("sys/fs/cgroup/work/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("sys/fs/cgroup/work/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CgroupTest, VersionTwoTakesTheStrictestAncestor) {
  write("proc/self/cgroup", "0::/work/job\n");
  write("sys/fs/cgroup/work/job/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/work/cpu.max", "50000 20000\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupTest, ContainerSeesItsOwnGroupAsTheRoot) {
  write("proc/self/cgroup", "0::/docker/0123456789ab\n");  // not there under the mount
  write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(CgroupTest, VersionOne) {
  write("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\n1:name=systemd:/y:z\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  write("proc/self/cgroup", "rubbish\n\n:::\n0::/a\n4:cpu:/b\n");
  write("sys/fs/cgroup/a/cpu.max", "-5 0\n");
  write("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "0\n");
  EXPECT_EQ(quota(), 0);
}

TEST(CpuInfo, FeaturesAgreeWithTheCompiler) {
  const CpuInfo& info = cpu_info();
  EXPECT_EQ(info.avx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c"));
  EXPECT_EQ(info.avx512,
            info.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(info.vnni, info.avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(info.vbmi, info.avx512 && __builtin_cpu_supports("avx512vbmi"));
  EXPECT_EQ(info.bf16, info.avx512 && __builtin_cpu_supports("avx512bf16"));
  EXPECT_EQ(info.fast_bf16, info.bf16 && __builtin_cpu_is("amd"));
}

TEST(CpuInfo, ModelIsTheKernels) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, model;
  while (model.empty() && std::getline(file, line))
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
  if (model.empty()) GTEST_SKIP() << "/proc/cpuinfo names no model";
  EXPECT_EQ(cpu_info().model, model);
}

TEST(CpuInfo, CachesGrowOutwards) {
  const CpuInfo& info = cpu_info();
  if (info.l1_bytes == 0 || info.l2_bytes == 0) GTEST_SKIP() << "this machine hides its caches";
  EXPECT_GE(info.l1_bytes, 8 * 1024);
  EXPECT_GE(info.l2_bytes, info.l1_bytes);
  EXPECT_TRUE(info.l3_bytes == 0 || info.l3_bytes >= info.l2_bytes);
}

TEST(CpuInfo, UsableCpusFollowTheAffinityMask) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), static_cast<int>(std::thread::hardware_concurrency()));
  std::thread([] {  // the mask belongs to this thread, and goes with it
    cpu_set_t mask, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &mask)) CPU_SET(i, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cpus(), 1);
  })
      .join();
}

}  // namespace
}  // namespace ridge
