// Control groups as the kernel shows them: both versions, nested, in a container, or none.
#include "ridge/attach/samples/cgroup_sample.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/attach/fake_proc.h"

namespace ridge::attach {
namespace {

class CgroupSampleTest : public testing::Test {
 protected:
  CgroupSampleTest() { proc_.process(100, {}); }
  /// A file of a group, or of /proc.
  void write(const std::string& name, const std::string& text) { proc_.write(name, text + "\n"); }
  CgroupReader reader() const { return CgroupReader(100, proc_.path(), proc_.path() + "/groups"); }
  CgroupSample take() const { return reader().take(); }
  void mount(const std::string& root, const std::string& folder, const std::string& type) {
    lines_ += fmt::format(
        "35 31 0:32 {} {}/{} rw,nosuid shared:9 - {}\n", root, proc_.path(), folder, type);
    proc_.write("self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\nodd line\n" + lines_);
  }

  FakeProc proc_;
  std::string lines_;
};

TEST_F(CgroupSampleTest, TheTightestLimitOnTheWayUpCounts) {
  write("100/cgroup", "0::/jobs/train/inner");
  write("groups/cgroup.controllers", "cpu memory");
  write("groups/jobs/cpu.max", "150000 100000");
  write("groups/jobs/cpu.stat", "usage_usec 9000000\nnr_throttled 8\nthrottled_usec 2500000");
  write("groups/jobs/memory.max", "max");
  write("groups/jobs/memory.current", "7000");
  write("groups/jobs/train/cpu.max", "200000 50000");
  write("groups/jobs/train/memory.max", "5000");
  write("groups/jobs/train/memory.current", "4000");
  write("groups/jobs/train/inner/cpu.max", "max 100000");
  write("groups/jobs/train/inner/cpu.stat", "usage_usec 1\nthrottled_usec 1");
  write("groups/jobs/train/inner/memory.max", "6000");
  write("groups/jobs/train/inner/memory.current", "3000");
  const CgroupSample sample = take();
  EXPECT_DOUBLE_EQ(sample.quota_cpus, 1.5);
  EXPECT_DOUBLE_EQ(sample.throttled_seconds, 2.5);
  EXPECT_DOUBLE_EQ(sample.used_seconds, 9);
  EXPECT_EQ(sample.memory_limit_bytes, 5000);
  EXPECT_EQ(sample.memory_bytes, 4000);
}

TEST_F(CgroupSampleTest, WithoutLimitsItsOwnUse) {
  write("100/cgroup", "0::/a");
  write("groups/cgroup.controllers", "");
  write("groups/a/cpu.stat", "usage_usec 3000000");
  write("groups/a/memory.current", "123");
  write("groups/a/memory.max", "max");
  const CgroupSample sample = take();
  EXPECT_EQ(sample.quota_cpus, -1);
  EXPECT_EQ(sample.throttled_seconds, 0);
  EXPECT_EQ(sample.memory_bytes, 123);
  EXPECT_EQ(sample.memory_limit_bytes, -1);
}

TEST_F(CgroupSampleTest, VersionOne) {
  write("100/cgroup", "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/system");
  write("groups/unified/cgroup.controllers", "");
  write("groups/cpu,cpuacct/cpu.stat", "nr_throttled 0");
  write("groups/cpu,cpuacct/cpuacct.usage", "1");
  write("groups/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "50000");
  write("groups/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000");
  write("groups/cpu,cpuacct/docker/ab/cpu.stat", "nr_periods 4\nthrottled_time 1500000000");
  write("groups/cpu,cpuacct/docker/ab/cpuacct.usage", "4000000000");
  write("groups/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1");
  write("groups/cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
  write("groups/memory/memory.usage_in_bytes", "99999");
  write("groups/memory/memory.limit_in_bytes", "9223372036854771712");
  write("groups/memory/docker/ab/memory.usage_in_bytes", "1000");
  write("groups/memory/docker/ab/memory.limit_in_bytes", "2000");
  const CgroupSample sample = take();
  EXPECT_DOUBLE_EQ(sample.quota_cpus, 0.5);
  EXPECT_DOUBLE_EQ(sample.throttled_seconds, 1.5);
  EXPECT_DOUBLE_EQ(sample.used_seconds, 4);
  EXPECT_EQ(sample.memory_bytes, 1000);
  EXPECT_EQ(sample.memory_limit_bytes, 2000);
}

// Each controller may be mounted wherever, and the groups of version 2 beside those of version 1.
TEST_F(CgroupSampleTest, MountPointsAreFound) {
  mount("/", "my\\040groups/cpu", "cgroup cgroup rw,cpu");
  mount("/", "v2", "cgroup2 cgroup2 rw");
  write("100/cgroup", "7:cpu:/x\n0::/y");
  write("my groups/cpu/x/cpu.cfs_quota_us", "300000");
  write("my groups/cpu/x/cpu.cfs_period_us", "100000");
  write("v2/y/memory.max", "4096");
  write("v2/y/memory.current", "77");
  const CgroupSample sample = take();
  EXPECT_DOUBLE_EQ(sample.quota_cpus, 3);
  EXPECT_EQ(sample.used_seconds, -1);
  EXPECT_EQ(sample.memory_limit_bytes, 4096);
  EXPECT_EQ(sample.memory_bytes, 77);
}

// In a container without a namespace of its own for groups the mount shows a part of the tree.
TEST_F(CgroupSampleTest, AMountOfAPartOfTheTree) {
  mount("/docker/ab", "groups/cpu", "cgroup cgroup rw,cpu");
  mount("/docker/ab", "groups/memory", "cgroup cgroup rw,memory");
  write("100/cgroup", "3:cpu:/docker/ab\n4:memory:/docker/ab/worker");
  write("groups/cpu/cpu.cfs_quota_us", "100000");
  write("groups/cpu/cpu.cfs_period_us", "100000");
  write("groups/memory/memory.limit_in_bytes", "5555");
  write("groups/memory/worker/memory.limit_in_bytes", "6666");
  EXPECT_DOUBLE_EQ(take().quota_cpus, 1);
  EXPECT_EQ(take().memory_limit_bytes, 5555);
  write("100/cgroup", "3:cpu:/docker/abc");  // beside it, though it begins alike
  EXPECT_EQ(take().quota_cpus, -1);
}

TEST_F(CgroupSampleTest, ANamespaceShowsItsOwnRoot) {
  write("100/cgroup", "0::/");
  write("groups/cgroup.controllers", "cpu memory");
  write("groups/cpu.max", "250000 100000");
  write("groups/memory.max", "888");
  EXPECT_DOUBLE_EQ(take().quota_cpus, 2.5);
  EXPECT_EQ(take().memory_limit_bytes, 888);
  CgroupReader inside = reader();
  inside.take();
  EXPECT_EQ(inside.missing(), "");
}

TEST_F(CgroupSampleTest, AGroupOutsideOfTheNamespaceIsNotSeen) {
  write("groups/cgroup.controllers", "cpu memory");
  write("groups/cpu.max", "250000 100000");
  for (const std::string path : {"/../..", "/../../other", "/gone", "/a/../../b"}) {
    write("100/cgroup", "0::" + path);
    CgroupReader outside = reader();
    const CgroupSample sample = outside.take();
    EXPECT_EQ(sample.quota_cpus, -1) << path;
    EXPECT_EQ(sample.throttled_seconds, -1) << path;
    EXPECT_NE(outside.missing().find("not visible from here"), std::string::npos) << path;
  }
  // But where the mount was made outside of it too, its root is named like the group.
  mount("/../..", "groups", "cgroup2 cgroup2 rw");
  write("100/cgroup", "0::/../..");
  EXPECT_DOUBLE_EQ(take().quota_cpus, 2.5);
}

TEST_F(CgroupSampleTest, WithoutGroups) {
  CgroupReader none = reader();
  const CgroupSample sample = none.take();
  EXPECT_EQ(sample.quota_cpus, -1);
  EXPECT_EQ(sample.throttled_seconds, -1);
  EXPECT_EQ(sample.memory_bytes, -1);
  EXPECT_EQ(none.missing(), "limits of a container (no cgroup)");
  proc_.remove("100");
  none.take();
  EXPECT_EQ(none.missing(), "");  // it has ended: nothing is missing
}

TEST_F(CgroupSampleTest, NonsenseIsNoLimit) {
  write("100/cgroup", "0::/\n:::\nx\n5:memory\n::::");
  write("groups/cgroup.controllers", "");
  write("groups/memory.max", "-5");
  for (const std::string text :
       {"", "max", "100000", "0 100000", "-1 100000", "100000 0", "1e5 100000", "x y"}) {
    write("groups/cpu.max", text);
    EXPECT_EQ(take().quota_cpus, -1) << text;
  }
  EXPECT_EQ(take().memory_limit_bytes, -1);
}

}  // namespace
}  // namespace ridge::attach
