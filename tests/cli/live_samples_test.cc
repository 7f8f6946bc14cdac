// Measurements of a program from outside, where a launcher has started the processes that train.
#include "ridge/cli/common/live_samples.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

/// A shell that waits for a child which computes on one processor; both are gone at the end.
class Launcher {
 public:
  explicit Launcher(const std::filesystem::path& pids) {
    const std::string script = "(while :; do :; done) & echo $! > '" + pids.string() + "'; wait";
    root_ = ::fork();
    if (root_ == 0) {
      ::setpgid(0, 0);
      cpu_set_t mask, first;
      CPU_ZERO(&mask);
      CPU_ZERO(&first);
      ::sched_getaffinity(0, sizeof mask, &mask);
      for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu)
        if (CPU_ISSET(cpu, &mask)) {
          CPU_ZERO(&first);
          CPU_SET(cpu, &first);
        }
      ::sched_setaffinity(0, sizeof first, &first);
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(99);
    }
    for (int i = 0; i < 6000 && child_ == 0; ++i) {
      std::ifstream(pids) >> child_;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() {
    ::kill(-root_, SIGKILL);
    ::waitpid(root_, nullptr, 0);
  }
  pid_t root() const { return root_; }
  pid_t child() const { return child_; }

 private:
  pid_t root_ = -1, child_ = 0;
};

TEST(LiveSamples, TheThreadThatTrainsMayBeALaunchersChild) {
  const test::TempFolder folder;
  const Launcher launcher(folder / "pids");
  ASSERT_GT(launcher.child(), 0);
  attach::ProcessFacts facts;
  facts.pid = launcher.child();
  facts.steps = 10;
  facts.profile = "waiting";
  LiveSamples samples(launcher.root());
  // A wait for the processor is counted when it is over.
  doctor::LiveFacts found;
  for (int i = 0; i < 4 || (i < 100 && found.main_cpu + found.main_queue <= 0.5); ++i) {
    samples.look({facts});
    found = samples.facts_with(facts);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_GT(found.seconds, 0.3);
  EXPECT_GT(found.main_cpu + found.main_queue, 0.5);
  EXPECT_EQ(found.cpus, 1);  // its own, not ours
  EXPECT_NE(samples.lines().at(0).find("of 1 CPUs used"), std::string::npos);

  EXPECT_EQ(found.ranks, 1);

  // Two ranks: what they compute with adds up; a third one that has ended does not count.
  attach::ProcessFacts launched = facts, ended = facts;
  facts.threads = launched.threads = ended.threads = 3;
  launched.pid = launcher.root();
  ended.pid = 1;
  LiveSamples ranks(launcher.root());
  for (int i = 0; i < 3; ++i) {
    ranks.look({facts, launched, ended});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(ranks.facts_with(facts).ranks, 2);
  EXPECT_EQ(ranks.facts_with(facts).torch_threads, 6);
  EXPECT_EQ(ranks.facts_with(facts).cpus, 1);

  // Times of a process that was never seen are not known: the launcher's are not taken for them.
  attach::ProcessFacts other = facts;
  other.pid = 1;
  EXPECT_EQ(samples.facts_with(other).main_cpu, -1);
}

}  // namespace
}  // namespace ridge
