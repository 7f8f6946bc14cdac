// The examination of a program that was watched while it ran: its trace, and more than a trace has.
#pragma once

#include <string>
#include <vector>

#include "ridge/doctor/examination.h"

namespace ridge::doctor {

/// Observations from outside, over the steady steps that were not profiled. -1: not known.
struct LiveFacts {
  int64_t cpus = -1;       ///< CPUs that one of its ranks here may use.
  double quota_cpus = -1;  ///< CPU quota of its cgroup; -1: no limit.
  /// Sampled time that the shares below refer to; 0: nothing was sampled.
  double seconds = 0;
  double main_cpu = -1;        ///< Shares of the time in which the thread that trains ran ...
  double main_queue = -1;      ///< ... and was ready, but had no processor.
  double throttled = -1;       ///< Share of the time in which the cgroup was held back.
  double queue = -1;           ///< Threads that were ready but had no processor, in the mean.
  double busy_threads = -1;    ///< Threads that wanted a processor, in the mean.
  double used_cpus = -1;       ///< Processors' worth of time used.
  int64_t ranks = 1;           ///< Processes of it on this machine that make steps.
  int64_t torch_threads = -1;  ///< Threads of the operators, in all these processes.
  int64_t batch = -1, loader_workers = -1;
  double short_products = -1;  ///< Analysis::short_products of this machine.
  std::string step_source{};   ///< "optimizer", "module" or empty.
  CallPlace place{};           ///< From a recording with stacks.
  LoadedBatches batches{};     ///< Known where its batches were watched.
};

/// `trace` is what a profiler recorded of a few steps; `spans` what a shim marked in all of them
/// (ridge/attach/shim.h), for little. Where time goes within a step comes from the first; how long
/// steps take, how often they stall and how long data is waited for comes from the second, since
/// a profiler slows some programs down: costs are in milliseconds of a step that is not profiled.
Examination examine_live(Trace trace, Trace spans, const LiveFacts& facts);

/// Finds the place in the program's code where most operators are called, by a recording with
/// stacks.
CallPlace place_of_calls(const Trace& stacks);

}  // namespace ridge::doctor
