// Training programs on a simulated machine: traces of which everything is known, with the files
// that Kineto and nsys would have written of them.
//
// A host thread issues calls to a device; kernels, copies and collectives wait for their stream,
// for events, and for each other's ranks. A program's step is a list of actions.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor::synthetic {

inline constexpr int64_t kComputeStream = 7, kCopyStream = 20, kCommunicationStream = 24;

/// The next action of the host. Times are at scale 1, before jitter.
struct Action {
  enum class What : uint8_t {
    kBeginOperator,  ///< `host_ns` until what is in it begins.
    kBeginRange,
    kEnd,         ///< The end of the innermost that has begun.
    kHost,        ///< A row of `kind` in which nothing is launched.
    kNextBatch,   ///< Waits for the loader.
    kLaunch,      ///< A kernel.
    kGraph,       ///< All of `nodes` with one call.
    kCopy,        ///< With `blocks_host` the call returns when it is done.
    kCollective,  ///< A kernel that ends on all ranks together.
    kRecord,      ///< An event on a stream.
    kStreamWait,  ///< A stream waits for an event.
    kAwaitEvent,  ///< The host waits: for an event, a stream, or all that the device has.
    kAwaitStream,
    kAwaitDevice,
    kCall,  ///< Any other call of the runtime; `blocks_host`: the device drains first.
  };
  What what = What::kHost;
  std::string name = {};
  int64_t host_ns = 0, device_ns = 0;
  int64_t stream = kComputeStream;
  int64_t event = 0;
  bool blocks_host = false;
  EventKind kind = EventKind::kPython;
  HostCause cause = HostCause::kOperators;
  Launch launch = {};
  Transfer transfer = {};
  std::string shapes = {}, types = {};
  int64_t bytes = 0;  ///< Bytes of a collective.
  std::vector<Action> nodes = {};
};
using Actions = std::vector<Action>;

/// Worker threads that make batches ahead of the host.
struct LoaderModel {
  int64_t workers = 4, ahead = 2;  ///< Batches ahead, a worker.
  int64_t batch_ns = 1'000'000;    ///< One batch, one worker.
  int64_t locked_ns = 0;           ///< The part of batch_ns that one worker does at a time.
};

struct Program {
  std::string name;
  /// The rule that should come first; for a healthy twin the one that must not.
  std::string rule = {};
  bool is_sick = false;
  int64_t steps = 16;
  int32_t ranks = 1;
  LoaderModel loader = {};
  std::function<Actions(int64_t step, int32_t rank)> step = {};
};

/// All pairs: the sick one, then its healthy twin.
std::vector<Program> all_programs();

struct Options {
  uint64_t seed = 1;
  double scale = 1;     ///< Factor of all times and of the sizes that go with them.
  double jitter = .02;  ///< Share by which each time varies, up or down.
};

/// The truth about the time between two marks of the host. Sums to the length of `at`.
struct StepTruth {
  Interval at;
  int64_t compute = 0, starved = 0, launch = 0, blocking = 0;
  std::array<int64_t, kHostCauses> starved_by = {};
  int64_t blocked_by_copies = 0, blocked_by_communication = 0;
};

struct SyntheticTrace {
  Trace trace;  ///< Sorted.
  std::vector<StepTruth> steps;
};

/// One for each rank.
std::vector<SyntheticTrace> simulate(const Program& program, const Options& options = {});

/// Writes the rows as the recorders do, in an order that depends on the seed.
void write_kineto(const Trace& trace, uint64_t seed, const std::filesystem::path& path);
void write_nsys(const Trace& trace, uint64_t seed, const std::filesystem::path& path);

}  // namespace ridge::doctor::synthetic
