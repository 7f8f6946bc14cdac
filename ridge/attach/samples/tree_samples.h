// Samples of a process and all that descends from it, by the system's counters.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ridge::attach {

/// Counters are totals since the thread or process began.
struct ThreadSample {
  pid_t thread = 0;
  std::string name{};
  char state = '?';  ///< The letter in /proc: R runs or waits for a processor, D waits for a disk.
  double cpu_seconds = 0, queue_seconds = 0;  ///< Ran; was ready to run, but had no processor.
};

struct ProcessSample {
  pid_t pid = 0, parent = 0;
  int64_t start_ticks = 0;  ///< With pid: who it is, since numbers are used again.
  std::string name{};
  int64_t rss_bytes = 0;
  int64_t read_bytes = 0, written_bytes = 0;  ///< From and to storage; -1: we may not know.
  int64_t minor_faults = 0;                   ///< Pages that were mapped without a disk.
  int64_t major_faults = 0;
  /// The first is the main thread. Empty: it has ended, but was not waited for, and uses nothing.
  std::vector<ThreadSample> threads{};
  int64_t thread_count = 0;  ///< Number of all threads; `threads` has at most 512.
  /// Processor time of all its threads, ended ones included, and of its children that ended and
  /// were waited for. Both have hundredths of a second: the times in `threads` are finer.
  double cpu_seconds = 0, waited_seconds = 0;
};

/// Counters of the cgroup (v2, or v1) that the root is in; -1: not known.
struct CgroupSample {
  double quota_cpus = -1;         ///< Processors' worth of time it may use; -1: no limit.
  double throttled_seconds = -1;  ///< Added up over the processors that it was held off.
  double used_seconds = -1;       ///< Processor time of all in it.
  int64_t memory_bytes = -1, memory_limit_bytes = -1;
};

struct TreeSample {
  int64_t at_ns = 0;  ///< By now_ns().
  /// The root first; empty: it is gone. Those that left their parent stay, if they were seen.
  std::vector<ProcessSample> processes;
  CgroupSample cgroup;
};

class TreeSampler {
 public:
  /// The folders are the system's outside of tests. `root` is who has that number now: one that
  /// gets the number later is not taken for it.
  explicit TreeSampler(pid_t root,
                       const std::string& proc = "/proc",
                       const std::string& cgroup = "/sys/fs/cgroup");
  TreeSampler(TreeSampler&& other) noexcept;
  TreeSampler& operator=(TreeSampler&& other) noexcept;
  ~TreeSampler();

  TreeSample take();
  /// Says in words what this system does not report: "waits for a processor (no schedstat)".
  std::vector<std::string> missing() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The load between two samples of one tree. Threads that began or ended meanwhile count with what
/// is known of them.
struct TreeLoad {
  double seconds = 0;
  double cpus = 0;        ///< Processors' worth of time that all of it used.
  double main_cpu = 0;    ///< Shares of the time in which the root's main thread ran ...
  double main_queue = 0;  ///< ... and was ready but had no processor.
  /// Threads that were ready but had no processor, in the mean: taken by others, or withheld by the
  /// cgroup's quota.
  double queue = 0;
  /// Share of the time that threads of the cgroup had work in which its quota held it back; -1: not
  /// known.
  double throttled = -1;
  int64_t busy_threads = 0;  ///< Threads that wanted a processor at least a tenth of the time.
  int64_t processes = 0, threads = 0;
  int64_t rss_bytes = 0;
  double read_bytes = -1, written_bytes = -1;  ///< A second; -1: not known.
  double disk_wait = 0;  ///< Share of the samples in which the main thread waited for a disk.
};
TreeLoad load_between(const TreeSample& before, const TreeSample& after);

/// The one process alone, if it is there.
TreeSample only(const TreeSample& sample, pid_t pid);

/// Processors that one of these processes may use, by the affinity of their main threads. Those of
/// this process where none of them says.
int64_t usable_cpus(std::span<const pid_t> of = {});

}  // namespace ridge::attach
