// A program on a made-up machine, run forwards: traces whose every dependency is known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// The next action of the one host thread.
struct Instruction {
  enum class What {
    kThink,       ///< ns
    kLaunch,      ///< A kernel of `ns` on `stream`.
    kRecord,      ///< Event `number` on `stream`.
    kWaitEvent,   ///< `stream` waits for event `number`.
    kSyncStream,  ///< The host waits for `stream`.
    kSyncDevice,
    kSyncEvent,  ///< The host waits for event `number`.
    kCopy,       ///< A copy of `ns` on `stream`; the host waits for it.
    kCopyAsync,
    kPrompt,  ///< A call that waits for nothing; ns
    kMark,    ///< A step ends.
  } what;
  int64_t ns = 0;
  int stream = 0;
  int number = 0;
};
using Program = std::vector<Instruction>;

/// The machine, in nanoseconds.
struct Machine {
  int64_t call = 4'000, launch_lag = 5'000, stream_lag = 1'000, return_lag = 5'000;
  size_t queue = 1024;
};

struct Simulated {
  Trace trace;
  Analysis analysis;
  std::vector<size_t> row_of;     ///< By instruction: its call, or Trace::size() of what has none.
  std::vector<size_t> work_of;    ///< By instruction: its device work.
  std::vector<int64_t> finished;  ///< By step: when it and all that it issued had ended.

  double step_ms() const {
    const size_t steps = finished.size() - 1;
    const size_t first = steps >= 3 ? std::min<size_t>(4, steps / 2) : 0;
    return static_cast<double>(finished.back() - finished[first]) / 1e6 /
           static_cast<double>(finished.size() - 1 - first);
  }
};

class Simulator {
 public:
  explicit Simulator(Machine machine) : machine_(machine) {}

  Simulated run(const Program& program) {
    out_.finished = {0};
    host_ = builder_.lane({.process = 1, .thread = 1});
    out_.analysis.launching_lane = host_;
    for (const Instruction& each : program) step(each);
    out_.analysis.steps.source = "ProfilerStep";
    out_.analysis.launched_by.assign(out_.trace.size(), out_.trace.size());
    for (const auto& [work, call] : launched_) out_.analysis.launched_by[work] = call;
    sort_rows();
    return std::move(out_);
  }

 private:
  using What = Instruction::What;

  struct Stream {
    std::vector<int64_t> starts;
    int64_t ends = 0;
    int64_t held_until = 0;  // By events.
    uint32_t lane = 0;
  };
  struct Event {
    int64_t ends = 0, correlation = -1;
    int stream = 0;
  };

  Stream& stream(int number) {
    const auto [found, is_new] = streams_.try_emplace(number);
    if (is_new)
      found->second.lane = builder_.lane({.process = 0, .thread = 7 + number, .device = 0});
    return found->second;
  }

  size_t add(EventKind kind, const char* name, uint32_t lane, int64_t start, int64_t end) {
    const size_t row = builder_.add(kind, builder_.text(name), lane, start, end - start);
    builder_.set_correlation(row, correlation_);
    return row;
  }

  /// Until when a call of this begin lasts, at least.
  void call(const char* name, int64_t end) {
    out_.row_of.back() = add(EventKind::kRuntime, name, host_, now_, end);
    now_ = end;
  }

  int64_t issue(const Instruction& each, EventKind kind, const char* name) {
    Stream& on = stream(each.stream);
    int64_t start = std::max(now_ + machine_.launch_lag, on.held_until);
    if (!on.starts.empty()) start = std::max(start, on.ends + machine_.stream_lag);
    out_.work_of.back() = add(kind, name, on.lane, start, start + each.ns);
    on.starts.push_back(start);
    on.ends = start + each.ns;
    step_ends_ = std::max(step_ends_, on.ends);
    int64_t returns = now_ + machine_.call;
    if (on.starts.size() > machine_.queue)
      returns = std::max(returns, on.starts[on.starts.size() - 1 - machine_.queue]);
    return returns;
  }

  void wait(const char* name, int64_t awaited, uint32_t lane, Sync sync) {
    const int64_t end =
        std::max(now_ + machine_.return_lag, awaited > now_ ? awaited + machine_.return_lag : 0);
    builder_.set(add(EventKind::kSynchronization, name, lane, now_, end), sync);
    call(name, end);
  }

  void step(const Instruction& each) {
    out_.row_of.push_back(SIZE_MAX);
    out_.work_of.push_back(SIZE_MAX);
    ++correlation_;
    switch (each.what) {
      case What::kThink:
        now_ += each.ns;
        break;
      case What::kLaunch:
        launch(each, EventKind::kKernel, "cudaLaunchKernel");
        break;
      case What::kCopyAsync:
        launch(each, EventKind::kCopy, "cudaMemcpyAsync");
        break;
      case What::kCopy: {
        const int64_t returns = issue(each, EventKind::kCopy, "Memcpy HtoD");
        const int64_t copied = stream(each.stream).ends + machine_.return_lag;
        call("cudaMemcpy", std::max(returns, copied));
        launched_.emplace_back(out_.work_of.back(), out_.row_of.back());
        break;
      }
      case What::kRecord:
        events_[each.number] = {stream(each.stream).ends, correlation_, each.stream};
        call("cudaEventRecord", now_ + machine_.call);
        break;
      case What::kWaitEvent: {
        const Event& event = events_.at(each.number);
        Stream& on = stream(each.stream);
        if (event.ends > 0)
          on.held_until = std::max(on.held_until, event.ends + machine_.stream_lag);
        builder_.set(add(EventKind::kSynchronization, "Stream Wait Event", on.lane, now_, now_),
                     Sync{Sync::What::kStreamWaitsEvent, 7 + event.stream, event.correlation, 1});
        call("cudaStreamWaitEvent", now_ + machine_.call);
        break;
      }
      case What::kSyncStream:
        wait("cudaStreamSynchronize",
             stream(each.stream).ends,
             stream(each.stream).lane,
             {.what = Sync::What::kStream});
        break;
      case What::kSyncDevice: {
        int64_t last = 0;
        for (const auto& [number, on] : streams_) last = std::max(last, on.ends);
        wait("cudaDeviceSynchronize", last, nowhere(), {.what = Sync::What::kContext});
        break;
      }
      case What::kSyncEvent: {
        const Event& event = events_.at(each.number);
        wait("cudaEventSynchronize",
             event.ends,
             nowhere(),
             {Sync::What::kEvent, 7 + event.stream, event.correlation, 1});
        break;
      }
      case What::kPrompt:
        call("cudaStreamQuery", now_ + each.ns);
        break;
      case What::kMark:
        out_.analysis.steps.windows.push_back({step_begins_, now_});
        step_begins_ = now_;
        step_ends_ = std::max(step_ends_, now_);
        out_.finished.push_back(step_ends_);
        break;
    }
  }

  void launch(const Instruction& each, EventKind kind, const char* name) {
    call(name, issue(each, kind, "work"));
    launched_.emplace_back(out_.work_of.back(), out_.row_of.back());
  }

  uint32_t nowhere() { return builder_.lane({.process = 0, .thread = -1, .device = 0}); }

  /// Rows by their start, as Trace::sort() leaves them, with all numbers of rows along.
  void sort_rows() {
    const Trace& from = out_.trace;
    std::vector<size_t> order(from.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return from.start_ns[a] < from.start_ns[b];
    });
    std::vector<size_t> place(order.size() + 1, order.size());
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    permute(out_.trace.kind, order);
    permute(out_.trace.name, order);
    permute(out_.trace.lane, order);
    permute(out_.trace.start_ns, order);
    permute(out_.trace.duration_ns, order);
    permute(out_.trace.correlation, order);
    permute(out_.trace.detail, order);
    permute(out_.analysis.launched_by, order);
    for (size_t& row : out_.analysis.launched_by) row = place[row];
    for (auto* rows : {&out_.row_of, &out_.work_of})
      for (size_t& row : *rows) row = place[std::min(row, order.size())];
  }

  template <typename T>
  static void permute(std::vector<T>& values, const std::vector<size_t>& order) {
    std::vector<T> sorted;
    for (const size_t i : order) sorted.push_back(values[i]);
    values = std::move(sorted);
  }

  Machine machine_;
  Simulated out_;
  TraceBuilder builder_{out_.trace};
  uint32_t host_ = 0;
  int64_t now_ = 0, step_begins_ = 0, step_ends_ = 0, correlation_ = 0;
  std::map<int, Stream> streams_;
  std::map<int, Event> events_;
  std::vector<std::pair<size_t, size_t>> launched_;  // work, call
};

inline Simulated simulated(const Program& program, Machine machine = {}) {
  return Simulator(machine).run(program);
}

}  // namespace ridge::doctor
