// The state of a watched program, made of samples that come one after another.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ridge/attach/samples/tree_samples.h"
#include "ridge/attach/shim.h"
#include "ridge/base/machine/nvml.h"

namespace ridge::attach {

/// All samples of one time.
struct WatchInput {
  int64_t wall_ns = 0;          ///< Since 1970.
  int64_t started_wall_ns = 0;  ///< When the program began; 0: not known.
  TreeSample tree{};
  std::vector<GpuSample> gpus{};
  /// Energy of all processor packages since the input before; -1: not known.
  double cpu_joules = -1;
  bool has_shim = false;  ///< Whether the program was started with one that marks steps.
  std::vector<ProcessFacts> facts{};
  std::vector<std::string> missing{};  ///< Says in words what this system does not report.
};

/// Steps of the process that counts them, of several the one with the most. -1: not known.
struct WatchedSteps {
  pid_t pid = 0;
  int64_t count = 0;
  double seconds = -1;     ///< Median of those lately.
  double per_second = -1;  ///< Over the last ten seconds or the last step, whichever is longer.
  double since_last = -1;  ///< Seconds since the last one ended.
  /// Share of the time that waited for data: lately, ever.
  double loader_share = -1, loader_share_ever = -1;
  double loader_seconds = -1;  ///< Since the first step.
  /// Processes that count steps: the ranks of a run.
  int64_t processes = 1;
  std::string source{};  ///< "optimizer" or "module".
  std::vector<LoaderFacts> loaders{};
};

struct WatchedProcess {
  pid_t pid = 0;
  std::string name{};
  double cpus = 0;
  int64_t rss_bytes = 0, threads = 0;
};

struct WatchState {
  double price_per_hour = -1;  ///< In whatever money; -1: not given.
  int64_t usable_cpus = 0;

  std::string program{};
  pid_t pid = 0;
  bool is_over = false;
  double elapsed = 0;  ///< Seconds since the program began, or since it is watched.
  int64_t inputs = 0;
  WatchInput last{};

  /// Empty until there are two samples. Its main thread is that of the process `main_pid`: the one
  /// that counts steps, which a launcher may have started, else the root.
  std::optional<TreeLoad> load{};
  pid_t main_pid = 0;
  std::optional<WatchedSteps> steps{};
  std::string why_no_steps{};             ///< Says why `steps` is empty.
  std::vector<WatchedProcess> processes;  ///< Those that use most processor time first.
  double cpu_watts = -1;

  /// Since the program began, or since it is watched where the system has no count of the whole.
  /// They never go down, though processes that end take their counters with them. -1: not known.
  double cpu_seconds = 0, read_bytes = -1, written_bytes = -1, cpu_joules = -1;
  int64_t peak_rss_bytes = 0;

  /// Oldest first: seconds a step, processors used, share of time with a kernel on a device.
  std::deque<double> step_history{}, cpu_history{}, gpu_history{};

  struct Mark {
    int64_t steps, wall_ns;
    double loader_seconds;
  };
  std::deque<Mark> marks{};  ///< Marks of the steps of the last ten seconds.
};

inline constexpr size_t kWatchHistory = 120;

/// Takes one more input into account.
void advance(WatchState& state, WatchInput input);

/// -1 where it is not known.
double cost_so_far(const WatchState& state);
double cost_per_thousand_steps(const WatchState& state);
/// Watts of devices and processors together, as far as known.
double watts_of(const WatchState& state);
double gpu_watts_of(const WatchState& state);
double joules_per_step(const WatchState& state);
/// Processors' worth of time that the program may use: of its affinity and its cgroup's quota.
double cpu_limit_of(const WatchState& state);

/// One line of JSON (ridge.watch/1) with its end; what is not known is null.
std::string watch_json(const WatchState& state);

}  // namespace ridge::attach
