#include "tests/doctor/synthetic_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "tests/doctor/synthetic_truth.h"

namespace ridge::doctor::synthetic {
namespace {

using What = Action::What;

// Of the machine, at scale 1.
constexpr int64_t kLaunchCallNs = 4'000, kLatencyNs = 2'500, kSmallCallNs = 1'200;
constexpr int64_t kWakeNs = 3'000;  // from the end of device work to the return of a call
constexpr size_t kQueueDepth = 1024;
constexpr int64_t kProcess = 4321, kThread = 4321;

struct RecordedEvent {
  std::optional<size_t> task;
  int64_t stream = -1, correlation = -1;
};

struct Frame {
  EventKind kind;
  std::string name;
  int64_t start;
  std::string shapes, types;
  int64_t bytes;
};

class Simulation {
 public:
  Simulation(const Program& program, const Options& options, int32_t rank)
      : program_(program),
        options_(options),
        rank_(rank),
        builder_(result_.trace),
        random_(options.seed * 1000003 + static_cast<uint64_t>(rank)) {
    tag_ = fmt::format("{:04x}", std::mt19937_64(options.seed)() & 0xffff);
    host_ = builder_.lane({.process = kProcess, .thread = kThread});
  }

  /// `meetings`: when the last rank comes to each collective.
  void run(const std::vector<int64_t>& meetings);
  SyntheticTrace take() {
    result_.trace.sort();
    return std::move(result_);
  }
  const std::vector<int64_t>& arrivals() const { return arrivals_; }

 private:
  int64_t timed(int64_t ns);
  int64_t scaled(int64_t size) const;
  std::string scaled_shapes(const std::string& shapes) const;
  Launch scaled_launch(Launch launch) const;
  Transfer scaled_transfer(Transfer transfer) const {
    transfer.bytes = scaled(transfer.bytes);
    return transfer;
  }
  void spend(int64_t until, HostCause cause, bool drains = false);
  void act(const Action& action);
  void end_frame();
  void next_batch(const Action& action);
  void collective(const Action& action);
  void wait(const Action& action);
  size_t call(const std::string& name, int64_t until, HostCause cause, bool drains = false);
  size_t enqueue(const Action& action, EventKind kind, int64_t call_start, int64_t available);
  void launch(const Action& action);
  void graph(const Action& action);
  void copy(const Action& action);
  void record(const Action& action);
  void stream_wait(const Action& action);
  void add_sync(const char* name, Sync sync, int64_t stream, Interval at, int64_t correlation);
  int64_t drained(int64_t stream) const;
  uint32_t device_lane(int64_t stream);
  int64_t wait_for_queue() const;

  const Program& program_;
  const Options& options_;
  int32_t rank_;
  SyntheticTrace result_;
  TraceBuilder builder_;
  std::mt19937_64 random_;
  std::string tag_;  // of names that differ from program to program
  uint32_t host_ = 0;

  int64_t now_ = 1'000'000;
  int64_t correlation_ = 0;
  std::vector<Frame> frames_;
  std::vector<HostStretch> host_time_;
  std::vector<Task> tasks_;
  std::vector<int64_t> starts_;                     // of tasks, in the order of their calls
  std::map<int64_t, size_t> last_in_;               // by stream
  std::map<int64_t, std::vector<size_t>> awaited_;  // by stream: what the next task waits for
  std::map<int64_t, RecordedEvent> events_;
  std::vector<int64_t> arrivals_;
  std::vector<int64_t> meetings_;
  std::vector<int64_t> worker_free_, taken_;
  int64_t lock_free_ = 0;
};

int64_t Simulation::timed(int64_t ns) {
  const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
  const double factor = options_.scale * (1 + options_.jitter * (2 * unit - 1));
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(ns) * factor));
}

int64_t Simulation::scaled(int64_t size) const {
  return std::max<int64_t>(1, std::llround(static_cast<double>(size) * options_.scale));
}

// Work grows with the rows of the first operand: "[[rows, ...".
std::string Simulation::scaled_shapes(const std::string& shapes) const {
  const size_t end = shapes.find_first_of(",]");
  if (!shapes.starts_with("[[") || end == std::string::npos) return shapes;
  return "[[" + std::to_string(scaled(std::stoll(shapes.substr(2, end - 2)))) + shapes.substr(end);
}

// A grid that does not fill the device stays as it is.
Launch Simulation::scaled_launch(Launch launch) const {
  constexpr int64_t kFull = 264;
  if (launch.grid[0] > kFull)
    launch.grid[0] =
        static_cast<int32_t>(std::clamp<int64_t>(scaled(launch.grid[0]), kFull, int64_t{1} << 30));
  return launch;
}

void Simulation::spend(int64_t until, HostCause cause, bool drains) {
  if (until <= now_) return;
  host_time_.push_back({{now_, until}, cause, drains});
  now_ = until;
}

size_t Simulation::call(const std::string& name, int64_t until, HostCause cause, bool drains) {
  const size_t row =
      builder_.add(EventKind::kRuntime, builder_.text(name), host_, now_, until - now_);
  builder_.set_correlation(row, ++correlation_);
  spend(until, cause, drains);
  return row;
}

uint32_t Simulation::device_lane(int64_t stream) {
  return builder_.lane({.process = kProcess, .thread = stream, .device = 0});
}

// A full queue holds the host until its oldest work has begun.
int64_t Simulation::wait_for_queue() const {
  return starts_.size() < kQueueDepth ? now_
                                      : std::max(now_, starts_[starts_.size() - kQueueDepth]);
}

size_t Simulation::enqueue(const Action& action,
                           EventKind kind,
                           int64_t call_start,
                           int64_t available) {
  Task task{.at = {available, 0},
            .computes = kind == EventKind::kKernel && action.what != What::kCollective,
            .is_copy = kind == EventKind::kCopy,
            .call_start = call_start,
            .after = std::move(awaited_[action.stream])};
  awaited_[action.stream].clear();
  const auto last = last_in_.find(action.stream);
  if (last != last_in_.end()) task.after.push_back(last->second);
  for (const size_t each : task.after) task.at.begin = std::max(task.at.begin, tasks_[each].at.end);
  task.at.end = task.at.begin + timed(action.device_ns);
  if (action.what == What::kCollective) {
    const size_t number = arrivals_.size();
    arrivals_.push_back(task.at.begin);
    const int64_t length = task.at.length();
    if (number < meetings_.size())
      task.at.end = std::max(task.at.begin, meetings_[number]) + length;
  }
  std::string name = action.name;
  if (kind == EventKind::kKernel) name += tag_ + (name.ends_with('<') ? ">" : "");
  const size_t row = builder_.add(
      kind, builder_.text(name), device_lane(action.stream), task.at.begin, task.at.length());
  builder_.set_correlation(row, correlation_);
  if (kind == EventKind::kKernel)
    builder_.set(row, scaled_launch(action.launch));
  else
    builder_.set(row, scaled_transfer(action.transfer));
  starts_.push_back(task.at.begin);
  tasks_.push_back(std::move(task));
  last_in_[action.stream] = tasks_.size() - 1;
  return tasks_.size() - 1;
}

void Simulation::launch(const Action& action) {
  const int64_t start = now_;
  call("cudaLaunchKernel", wait_for_queue() + timed(kLaunchCallNs), HostCause::kOperators);
  enqueue(action, EventKind::kKernel, start, now_ + timed(kLatencyNs));
}

void Simulation::graph(const Action& action) {
  const int64_t start = now_;
  const auto nodes = static_cast<int64_t>(action.nodes.size());
  call("cudaGraphLaunch", wait_for_queue() + timed(2 * kLaunchCallNs), HostCause::kOperators);
  const int64_t available = now_ + timed(kLatencyNs + 20 * nodes);
  for (const Action& node : action.nodes) enqueue(node, EventKind::kKernel, start, available);
}

void Simulation::copy(const Action& action) {
  const int64_t start = now_;
  const bool is_async = action.transfer.is_async;
  // The task is needed to know how long the call lasts.
  ++correlation_;
  const int64_t end = wait_for_queue() + timed(kLaunchCallNs);
  const size_t task = enqueue(action, EventKind::kCopy, start, end + timed(kLatencyNs));
  --correlation_;
  const int64_t until = action.blocks_host ? tasks_[task].at.end + timed(kWakeNs) : end;
  call(is_async ? "cudaMemcpyAsync" : "cudaMemcpy", until, action.cause, action.blocks_host);
}

void Simulation::collective(const Action& action) {
  const int64_t start = now_;
  call("cudaLaunchKernelExC", wait_for_queue() + timed(kLaunchCallNs), HostCause::kOperators);
  enqueue(action, EventKind::kKernel, start, now_ + timed(kLatencyNs));
}

void Simulation::record(const Action& action) {
  call("cudaEventRecord", now_ + timed(kSmallCallNs), HostCause::kOperators);
  const auto last = last_in_.find(action.stream);
  events_[action.event] = {last == last_in_.end() ? std::nullopt : std::optional(last->second),
                           action.stream,
                           correlation_};
}

void Simulation::add_sync(
    const char* name, Sync sync, int64_t stream, Interval at, int64_t correlation) {
  const size_t row = builder_.add(
      EventKind::kSynchronization, builder_.text(name), device_lane(stream), at.begin, at.length());
  builder_.set_correlation(row, correlation);
  builder_.set(row, sync);
}

void Simulation::stream_wait(const Action& action) {
  const int64_t start = now_;
  call("cudaStreamWaitEvent", now_ + timed(kSmallCallNs), HostCause::kOperators);
  const RecordedEvent& event = events_[action.event];
  if (event.task) awaited_[action.stream].push_back(*event.task);
  add_sync("Stream Wait Event",
           {Sync::What::kStreamWaitsEvent, event.stream, event.correlation, action.event},
           action.stream,
           {start, now_},
           correlation_);
}

int64_t Simulation::drained(int64_t stream) const {
  int64_t end = 0;
  for (const auto& [each, task] : last_in_)
    if (stream < 0 || stream == each) end = std::max(end, tasks_[task].at.end);
  return end;
}

void Simulation::wait(const Action& action) {
  const int64_t start = now_;
  const RecordedEvent& event = events_[action.event];
  const bool on_event = action.what == What::kAwaitEvent;
  const bool on_stream = action.what == What::kAwaitStream;
  int64_t end = 0;
  if (on_event)
    end = event.task ? tasks_[*event.task].at.end : 0;
  else
    end = drained(on_stream ? action.stream : -1);
  const char* name = on_event    ? "cudaEventSynchronize"
                     : on_stream ? "cudaStreamSynchronize"
                                 : "cudaDeviceSynchronize";
  const int64_t until = std::max(now_ + timed(kSmallCallNs), end + timed(kWakeNs));
  call(name, until, HostCause::kSync, end > start);
  if (on_event)
    add_sync("Event Sync",
             {Sync::What::kEvent, event.stream, event.correlation, action.event},
             -1,
             {start, now_},
             correlation_);
  else if (on_stream)
    add_sync("Stream Sync", {Sync::What::kStream}, action.stream, {start, now_}, correlation_);
  else
    add_sync("Context Sync", {Sync::What::kContext}, -1, {start, now_}, correlation_);
}

// Batch n is made by worker n % workers, once batch n - workers * ahead has been taken.
void Simulation::next_batch(const Action& action) {
  const LoaderModel& loader = program_.loader;
  const auto batch = static_cast<int64_t>(taken_.size());
  worker_free_.resize(loader.workers, 0);
  int64_t& free = worker_free_[batch % loader.workers];
  const int64_t before = batch - loader.workers * loader.ahead;
  const int64_t start = std::max(free, before >= 0 ? taken_[before] : 0);
  int64_t ready = start + timed(loader.batch_ns - loader.locked_ns);
  const uint32_t lane = builder_.lane(
      {.process = kProcess, .thread = kThread + 1 + batch % loader.workers, .name = "worker"});
  if (loader.locked_ns > 0) {
    const int64_t turn = std::max(ready, lock_free_);
    if (turn > ready)
      builder_.add(EventKind::kHostWait, builder_.text("futex"), lane, ready, turn - ready);
    ready = turn + timed(loader.locked_ns);
    lock_free_ = ready;
  }
  builder_.add(EventKind::kRange, builder_.text("decode batch"), lane, start, ready - start);
  free = ready;
  const int64_t until = std::max(now_ + timed(action.host_ns), ready + timed(kWakeNs));
  const char* name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
  builder_.add(EventKind::kRange, builder_.text(name), host_, now_, until - now_);
  if (ready > now_)
    builder_.add(EventKind::kHostWait, builder_.text("poll"), host_, now_, ready - now_);
  spend(until, HostCause::kLoader);
  taken_.push_back(now_);
}

void Simulation::end_frame() {
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  const size_t row =
      builder_.add(frame.kind, builder_.text(frame.name), host_, frame.start, now_ - frame.start);
  if (frame.shapes.empty() && frame.bytes == 0) return;
  builder_.set(row,
               Details{.shapes = builder_.text(frame.shapes),
                       .types = builder_.text(frame.types),
                       .collective = frame.bytes});
}

void Simulation::act(const Action& action) {
  switch (action.what) {
    case What::kBeginOperator:
    case What::kBeginRange: {
      const bool is_operator = action.what == What::kBeginOperator;
      frames_.push_back({is_operator ? EventKind::kOperator : EventKind::kRange,
                         action.name,
                         now_,
                         scaled_shapes(action.shapes),
                         action.types,
                         action.bytes == 0 ? 0 : scaled(action.bytes) / 2 * 2});
      if (action.host_ns > 0) spend(now_ + timed(action.host_ns), action.cause);
      return;
    }
    case What::kEnd:
      return end_frame();
    case What::kHost: {
      const int64_t until = now_ + timed(action.host_ns);
      builder_.add(action.kind, builder_.text(action.name), host_, now_, until - now_);
      if (action.cause == HostCause::kCheckpoint)
        builder_.add(EventKind::kHostWait, builder_.text("fsync"), host_, now_, until - now_);
      return spend(until, action.cause);
    }
    case What::kNextBatch:
      return next_batch(action);
    case What::kLaunch:
      return launch(action);
    case What::kGraph:
      return graph(action);
    case What::kCopy:
      return copy(action);
    case What::kCollective:
      return collective(action);
    case What::kRecord:
      return record(action);
    case What::kStreamWait:
      return stream_wait(action);
    case What::kAwaitEvent:
    case What::kAwaitStream:
    case What::kAwaitDevice:
      return wait(action);
    case What::kCall: {
      const int64_t end = action.blocks_host ? std::max(now_, drained(-1)) : now_;
      call(action.name, end + timed(action.host_ns), action.cause, end > now_);
      return;
    }
  }
}

void Simulation::run(const std::vector<int64_t>& meetings) {
  meetings_ = meetings;
  Trace& trace = result_.trace;
  trace.recorder = "simulation";
  trace.base_ns = 1'700'000'000'000'000'000;
  trace.devices = {{.number = 0,
                    .name = "NVIDIA H200",
                    .multiprocessors = 132,
                    .major = 9,
                    .memory_bytes = int64_t{141} << 30}};
  if (program_.ranks > 1) {
    trace.rank = rank_;
    trace.world = program_.ranks;
  }
  for (int64_t step = 0; step < program_.steps; ++step) {
    const int64_t start = now_;
    for (const Action& each : program_.step(step, rank_)) act(each);
    result_.steps.push_back({.at = {start, now_}});
    builder_.add(EventKind::kRange,
                 builder_.text(fmt::format("ProfilerStep#{}", step)),
                 host_,
                 start,
                 now_ - start);
  }
  act({.what = What::kAwaitDevice});
  find_truth(tasks_, host_time_, result_.steps);
}

}  // namespace

std::vector<SyntheticTrace> simulate(const Program& program, const Options& options) {
  // Ranks wait for each other, so that times of one follow from those of all. They only grow, and
  // each round settles at least one more collective.
  std::vector<int64_t> meetings;
  for (;;) {
    std::vector<int64_t> next;
    std::vector<SyntheticTrace> traces;
    for (int32_t rank = 0; rank < program.ranks; ++rank) {
      Simulation simulation(program, options, rank);
      simulation.run(meetings);
      const std::vector<int64_t>& arrivals = simulation.arrivals();
      next.resize(arrivals.size(), 0);
      for (size_t i = 0; i < arrivals.size(); ++i) next[i] = std::max(next[i], arrivals[i]);
      traces.push_back(simulation.take());
    }
    if (next == meetings || program.ranks == 1) return traces;
    meetings = std::move(next);
  }
}

}  // namespace ridge::doctor::synthetic
