// Measurements of a program from outside, summed up over its steady steps.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ridge/attach/samples/tree_samples.h"
#include "ridge/attach/shim.h"
#include "ridge/base/machine/nvml.h"
#include "ridge/doctor/live/live.h"

namespace ridge {

class LiveSamples {
 public:
  explicit LiveSamples(pid_t root);

  /// Samples once. The load since the last sample counts if steps went on and nothing was being
  /// recorded, at both samples.
  void look(const std::vector<attach::ProcessFacts>& facts);

  /// With what `process` says of itself.
  doctor::LiveFacts facts_with(const attach::ProcessFacts& process) const;
  /// "beside the trace: 1.92 of 2 CPUs used, ...", a line each, and what could not be seen.
  std::vector<std::string> lines() const;

 private:
  /// Sums for one process that makes steps, which a launcher may have started.
  struct Stepping {
    /// The times measured, and those in which its main thread ran, or waited for a processor.
    double seconds = 0, main_cpu = 0, main_queue = 0;
  };

  void add(const attach::TreeLoad& load);
  void add_stepping(const attach::TreeSample& sample,
                    const std::vector<attach::ProcessFacts>& facts);
  Stepping busiest() const;
  void add_gpus();

  attach::TreeSampler sampler_;
  Nvml nvml_;
  std::optional<attach::TreeSample> last_;
  bool was_steady_ = false;
  std::map<pid_t, Stepping> stepping_;
  /// Totals of the processes that make steps at one time: the most that were seen.
  int64_t ranks_ = 0, torch_threads_ = 0, cpus_ = 0;
  attach::TreeLoad sum_;  ///< Each share times seconds; counts as their most.
  double throttled_seconds_ = 0, busy_seconds_ = 0;
  double seconds_ = 0, throttle_known_seconds_ = 0;
  double quota_cpus_ = -1;
  std::vector<GpuSample> gpus_;  ///< Shares and watts summed over `gpu_samples_`.
  int64_t gpu_samples_ = 0;
};

}  // namespace ridge
