// Samples of a process tree in a folder that is made as /proc is, and in hostile ones.
#include "ridge/attach/samples/tree_samples.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/attach/fake_proc.h"
#include "tests/support/scale.h"

namespace ridge::attach {
namespace {

TreeSampler sampler_of(const FakeProc& proc, pid_t root = 100) {
  return TreeSampler(root, proc.path(), proc.path() + "/no-cgroup");
}

std::vector<pid_t> pids(const TreeSample& sample) {
  std::vector<pid_t> found;
  for (const ProcessSample& process : sample.processes) found.push_back(process.pid);
  return found;
}

TEST(TreeSamples, AProcessAndItsThreads) {
  const FakeProc proc;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  proc.process(100,
               {.name = "python",
                .major_faults = 12,
                .user_ticks = 900,
                .system_ticks = 100,
                .waited_ticks = 50,
                .threads = 2,
                .rss_pages = 1000});
  proc.schedule(100, 100, 4'500'000'000, 250'000'000);
  proc.thread(100, 42, {.name = "pt_data_pin", .state = 'D'});  // a lower number than the main one
  proc.schedule(100, 42, 1'000, 2'000);
  proc.io(100, 4096, 81920);

  TreeSampler sampler = sampler_of(proc);
  const TreeSample sample = sampler.take();
  ASSERT_EQ(sample.processes.size(), 1u);
  const ProcessSample& process = sample.processes[0];
  EXPECT_EQ(process.pid, 100);
  EXPECT_EQ(process.parent, 1);
  EXPECT_EQ(process.start_ticks, 5000);
  EXPECT_EQ(process.name, "python");
  EXPECT_EQ(process.rss_bytes, 1000 * page);
  EXPECT_EQ(process.major_faults, 12);
  EXPECT_EQ(process.read_bytes, 4096);
  EXPECT_EQ(process.written_bytes, 81920);
  EXPECT_DOUBLE_EQ(process.cpu_seconds, 10.0);
  EXPECT_DOUBLE_EQ(process.waited_seconds, 0.5);
  EXPECT_EQ(process.thread_count, 2);
  ASSERT_EQ(process.threads.size(), 2u);
  EXPECT_EQ(process.threads[0].thread, 100);
  EXPECT_DOUBLE_EQ(process.threads[0].cpu_seconds, 4.5);
  EXPECT_DOUBLE_EQ(process.threads[0].queue_seconds, 0.25);
  EXPECT_EQ(process.threads[1].thread, 42);
  EXPECT_EQ(process.threads[1].name, "pt_data_pin");
  EXPECT_EQ(process.threads[1].state, 'D');
  EXPECT_DOUBLE_EQ(process.threads[1].cpu_seconds, 1e-6);
  EXPECT_EQ(sampler.missing(), std::vector<std::string>{"limits of a container (no cgroup)"});
}

TEST(TreeSamples, NamesMayHoldAnything) {
  for (const std::string name : {"a b", "a) S 1 (", ")", "((", "x\ny", "1 2 3 4", ""}) {
    const FakeProc proc;
    proc.process(100, {.parent = 33, .name = name, .state = 'R', .start = 77});
    const TreeSample sample = sampler_of(proc).take();
    ASSERT_EQ(sample.processes.size(), 1u) << name;
    EXPECT_EQ(sample.processes[0].parent, 33);
    EXPECT_EQ(sample.processes[0].start_ticks, 77);
    EXPECT_EQ(sample.processes[0].threads[0].state, 'R');
    EXPECT_EQ(sample.processes[0].name, name == "x\ny" ? "x?y" : name);
  }
}

TEST(TreeSamples, AllThatDescendsWhateverItsNumber) {
  const FakeProc proc;
  proc.process(1, {.parent = 0});
  proc.process(100, {});
  proc.process(101, {});               // beside the root
  proc.process(102, {.parent = 101});  // and below what is beside it
  proc.process(200, {.parent = 100});
  proc.process(50, {.parent = 200});
  proc.process(7, {.parent = 50});
  proc.process(300, {.parent = 300});  // no process is its own parent
  EXPECT_EQ(pids(sampler_of(proc).take()), (std::vector<pid_t>{100, 7, 50, 200}));
}

TEST(TreeSamples, WhatLeavesItsParentStaysWhileItIsTheSame) {
  const FakeProc proc;
  proc.process(1, {.parent = 0});
  proc.process(100, {});
  proc.process(200, {.parent = 100, .start = 6000});
  proc.process(201, {.parent = 200, .start = 6001});
  TreeSampler sampler = sampler_of(proc);
  EXPECT_EQ(sampler.take().processes.size(), 3u);
  proc.remove("200");
  proc.process(201, {.parent = 1, .start = 6001});
  proc.process(202, {.parent = 201, .start = 6002});
  EXPECT_EQ(pids(sampler.take()), (std::vector<pid_t>{100, 201, 202}));
  proc.process(201, {.parent = 1, .start = 9000});  // another one by the same number
  EXPECT_EQ(pids(sampler.take()), (std::vector<pid_t>{100, 202}));
}

TEST(TreeSamples, WhoTakesTheNumberOfAnEndedStrangerIsSeenInTime) {
  const FakeProc proc;
  proc.process(100, {});
  proc.process(200, {.parent = 1, .start = 10});
  TreeSampler sampler = sampler_of(proc);
  EXPECT_EQ(sampler.take().processes.size(), 1u);
  proc.remove("200");
  EXPECT_EQ(sampler.take().processes.size(), 1u);
  proc.process(200, {.parent = 100, .start = 9000});
  EXPECT_EQ(sampler.take().processes.size(), 2u);
}

TEST(TreeSamples, ARootThatIsGoneIsNoTree) {
  const FakeProc proc;
  proc.process(100, {});
  proc.process(200, {.parent = 100});
  TreeSampler sampler = sampler_of(proc);
  proc.process(100, {.state = 'Z'});
  EXPECT_TRUE(sampler.take().processes.empty());
  proc.process(100, {.state = 'Z', .threads = 3});  // the main thread ended, the others did not
  EXPECT_FALSE(sampler.take().processes.empty());
  proc.process(100, {.parent = 200, .start = 5001});
  EXPECT_TRUE(sampler.take().processes.empty());
  proc.remove("100");
  EXPECT_TRUE(sampler.take().processes.empty());
  EXPECT_TRUE(sampler_of(proc, 4711).take().processes.empty());
  EXPECT_TRUE(TreeSampler(100, "/no/such/proc", "/no/such/cgroup").take().processes.empty());
}

TEST(TreeSamples, AnEndedChildThatNobodyWaitedForHasNoThreads) {
  const FakeProc proc;
  proc.process(100, {});
  proc.process(200, {.parent = 100, .state = 'Z', .user_ticks = 300});
  const TreeSample sample = sampler_of(proc).take();
  ASSERT_EQ(sample.processes.size(), 2u);
  EXPECT_TRUE(sample.processes[1].threads.empty());
  EXPECT_DOUBLE_EQ(sample.processes[1].cpu_seconds, 3.0);
}

TEST(TreeSamples, WithoutSchedstatTicksCount) {
  for (const bool has_zeros : {false, true}) {
    const FakeProc proc;
    proc.process(100, {.user_ticks = 250, .system_ticks = 50});
    proc.io(100, 1, 1);
    if (has_zeros) proc.write("100/task/100/schedstat", "0 0 0\n");
    TreeSampler sampler = sampler_of(proc);
    for (int i = 0; i < 3; ++i)
      EXPECT_DOUBLE_EQ(sampler.take().processes.at(0).threads.at(0).cpu_seconds, 3.0);
    EXPECT_EQ(sampler.missing(),
              (std::vector<std::string>{"waits for a processor (no schedstat)",
                                        "limits of a container (no cgroup)"}));
  }
}

TEST(TreeSamples, BytesThatWeMayNotKnow) {
  const FakeProc proc;
  proc.process(100, {});
  proc.schedule(100, 100, 1, 1);
  TreeSampler sampler = sampler_of(proc);
  EXPECT_EQ(sampler.take().processes.at(0).read_bytes, -1);
  EXPECT_EQ(sampler.missing().at(0), "bytes from and to disks (no /proc/PID/io)");
  if (::geteuid() == 0) return;  // who may read everything
  proc.io(100, 3, 4);
  ::chmod((proc.path() + "/100/io").c_str(), 0);
  TreeSampler other = sampler_of(proc);
  EXPECT_EQ(other.take().processes.at(0).written_bytes, -1);
  EXPECT_EQ(other.missing().at(0), "bytes from and to disks (no rights to read /proc/PID/io)");
}

TEST(TreeSamples, ManyThreadsAreCounted) {
  const FakeProc proc;
  proc.process(100, {.threads = 600});
  for (pid_t thread = 101; thread < 700; ++thread) proc.thread(100, thread, {});
  TreeSampler sampler = sampler_of(proc);
  const ProcessSample process = sampler.take().processes.at(0);
  EXPECT_EQ(process.threads.size(), 512u);
  EXPECT_EQ(process.thread_count, 600);
  EXPECT_EQ(sampler.missing().front(), "bytes from and to disks (no /proc/PID/io)");
  EXPECT_NE(sampler.missing().at(1).find("beyond the first 512"), std::string::npos);
}

// Lays something hostile over one file of the folder.
void spoil(const FakeProc& proc, const std::string& name, std::mt19937_64& random) {
  const std::filesystem::path path = proc.path() + "/" + name;
  std::string bytes(random() % 300, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  const std::string numbers = "99999999999999999999 -1 9223372036854775807 -9223372036854775808 ";
  switch (random() % 8) {
    case 0:
      return proc.write(name, bytes);
    case 1:
      return proc.write(name, stat_line(100, {}).substr(0, random() % 120));
    case 2:
      return proc.write(name, "");
    case 3:
      return proc.write(name, "100 (x) R 100 " + numbers + numbers + numbers + numbers);
    case 4:
      return proc.write(name, std::string(20000, '('));
    case 5:
      return proc.remove(name);
    case 6:
      proc.remove(name);
      return void(::mkfifo(path.c_str(), 0600));
    default: {
      proc.remove(name);
      std::error_code ignored;
      std::filesystem::create_symlink(path.filename(), path, ignored);  // to itself
    }
  }
}

void expect_sane(const TreeLoad& load) {
  for (const double value : {load.cpus, load.queue, load.disk_wait}) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_GE(value, 0);
  }
  for (const double share : {load.main_cpu, load.main_queue}) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  }
  EXPECT_LE(load.throttled, 1);
  EXPECT_GE(load.rss_bytes, 0);
  EXPECT_GE(load.threads, load.processes);
}

TEST(TreeSamples, HostileFilesAreNeverAnError) {
  for (int seed = 0; seed < test::cases(150); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const FakeProc proc;
    proc.write("cgroup/cgroup.controllers", "cpu memory");
    for (const pid_t pid : {100, 101, 102}) {
      proc.process(pid, {.parent = pid - 1, .threads = 2});
      proc.schedule(pid, pid, 5, 6);
      proc.thread(pid, pid + 50, {});
      proc.io(pid, 7, 8);
      proc.write(fmt::format("{}/cgroup", pid), "0::/\n");
    }
    TreeSampler sampler(100, proc.path(), proc.path() + "/cgroup");
    TreeSample before = sampler.take();
    EXPECT_EQ(before.processes.size(), 3u);
    for (int i = 0; i < 4; ++i) {
      const std::vector<std::string> names = {"100/stat",
                                              "101/stat",
                                              "100/task/100/stat",
                                              "100/task/100/schedstat",
                                              "101/task/101/stat",
                                              "101/task/151",
                                              "102/task",
                                              "100/io",
                                              "100/cgroup",
                                              "cgroup/cpu.max",
                                              "cgroup/cpu.stat",
                                              "cgroup/memory.max",
                                              "101",
                                              "self/mountinfo"};
      proc.write("self/mountinfo", "");
      spoil(proc, names[random() % names.size()], random);
      TreeSample after = sampler.take();
      after.at_ns = before.at_ns + 250'000'000;
      expect_sane(load_between(before, after));
      expect_sane(load_between(after, before));
      before = std::move(after);
    }
  }
}

}  // namespace
}  // namespace ridge::attach
