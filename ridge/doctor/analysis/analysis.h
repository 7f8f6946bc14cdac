// The division of a steady step's time among its causes. Every nanosecond is counted once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/doctor/trace/intervals.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Steady steps: warm-up, and what ends the recording, left out.
struct Steps {
  std::vector<Interval> windows;  ///< Adjacent or apart, ascending.
  /// "ProfilerStep", the name of another range that is one a step, "optimizer", "kernels repeat",
  /// "operators repeat", "whole trace".
  std::string source;
  int64_t left_out = 0;
  bool are_marked() const { return source != "whole trace"; }
};
Steps find_steps(const Trace& trace);

/// Activities of the launching thread that can starve the device.
enum class HostCause : uint8_t {
  kLoader,       ///< Waited for data.
  kSync,         ///< A blocking call had returned, and the next launch came late.
  kAllocation,   ///< cudaMalloc and the like.
  kModule,       ///< Loads code, compiles it, searches for an algorithm.
  kPageable,     ///< A copy through pageable memory.
  kCheckpoint,   ///< Writes files.
  kInterpreter,  ///< Garbage collection, or frames with no operator in them.
  kOffCpu,       ///< Was not running.
  kOperators,    ///< The work of issuing: operators and launches.
  kUnknown,
};
inline constexpr size_t kHostCauses = static_cast<size_t>(HostCause::kUnknown) + 1;
std::string_view name_of(HostCause cause);

/// A stretch in which no kernel computed, and the launch that ended it. Starved: up to the call
/// that launched the next kernel. Launch: from then on, once all that it waits for had ended.
/// Blocking: from then on, while something that it waits for ran. One that lies across the edge of
/// a window is one of each.
struct Gap {
  Interval at;
  size_t next = 0;  ///< Row of the kernel after it; Trace::size() where none computes any more.
  int64_t starved_ns = 0, launch_ns = 0, blocking_ns = 0, unknown_ns = 0;  ///< Sum: at.length().
  HostCause cause = HostCause::kUnknown;  ///< The cause of most of starved_ns.
  int64_t by_cause_ns[kHostCauses] = {};  ///< Shares of starved_ns.
  std::vector<size_t> blockers = {};      ///< Rows that blocking_ns is charged to.
};

/// Means over the steady steps, in milliseconds. wall = busy + idle;
/// starved + launch + blocking + unknown = wall - compute. Of a program on the CPU, busy and
/// compute are the union of operator time, but for what fetches data; starved is the rest, and
/// what only devices have is 0.
struct Breakdown {
  double wall = 0, busy = 0, compute = 0, copy = 0, communication = 0, idle = 0;
  double starved = 0, launch = 0, blocking = 0, unknown = 0;
  double starved_by[kHostCauses] = {};
};

/// Steps of a program that was watched while it ran, and that no profiler recorded.
struct Unprofiled {
  int64_t steps = 0;    ///< Steady ones.
  double slowdown = 0;  ///< Relative: the profiler makes a step longer by this share; 0.08 is 8 %.
};

/// The function of the program that most operators are called from; those of the backward pass and
/// of the update are its own doing only at one place each, and do not count.
struct CallPlace {
  std::string name{};  ///< "train.py(12): forward", the line of the calls where it is known.
  double share = 0;    ///< Share of these operators; 0: no stacks were recorded.
};

/// A live program's batches were watched while they were made. A trace alone has none of it.
struct LoadedBatches {
  /// The class of a change of the number of loader workers; nothing where it is not known.
  std::optional<SemanticClass> workers_class{};
  std::string reason{};  ///< "samples draw random numbers (torch)"; empty: the bits stay.
  double make_ms = -1;   ///< Milliseconds in which one batch is made; -1: not known.
  int64_t bytes = -1;    ///< Bytes of one batch; -1: not known.
};

struct Replay;  // doctor/replay/replay.h

struct Analysis {
  Steps steps;
  bool is_cpu_only = false;
  int32_t device = -1;  ///< The device that the analysis is of: the one with most kernel time.
  double step_ms_median = 0, step_ms_min = 0, step_ms_max = 0;
  Breakdown breakdown;
  std::vector<Gap> gaps;            ///< All gaps of the steady steps, ascending.
  std::vector<size_t> launched_by;  ///< By row: of device work the row of its call, else size().
  std::vector<size_t> kernels;  ///< Rows of the device's that begin in a steady step, ascending.
  uint32_t launching_lane = Trace::kNone;  ///< The host thread that launches most.
  std::shared_ptr<const Replay> replay;    ///< Made once, for all who predict; null: not replayed.
  std::optional<double> replay_error;  ///< |replayed - measured| / measured; empty: not replayed.
  int64_t batch = -1;                  ///< Samples that the loader gives at once; -1: not known.
  CallPlace place;                     ///< By a recording of its own, where there is one.
  /// Times as fast as in FP32 the processor multiplies 16-bit numbers; 1: it has no instructions
  /// for that; -1: not known.
  double short_products = -1;
  LoadedBatches batches;  ///< Known where the program itself was watched.
  /// If there are such steps, step_ms_*, the breakdown and the findings' costs refer to them.
  std::optional<Unprofiled> unprofiled;
};

/// A pure function of the trace. Never throws for what is in it: an empty trace has no steps.
Analysis analyse(const Trace& trace);
/// Analyses the steps that the caller names.
Analysis analyse(const Trace& trace, Steps steps);

/// Communication, by its name: NCCL, RCCL, MPI and their like.
bool is_communication(std::string_view kernel_name);

}  // namespace ridge::doctor
