// The host calls and the device work that a dependency graph is made of, by thread and by stream.
#pragma once

#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// "StreamSynchronize" of cudaStreamSynchronize, hipStreamSynchronize or cuStreamSynchronize.
std::string_view without_vendor(std::string_view call);

/// Whether a call of this name, without its vendor, waits for all work of the device.
bool waits_for_device(std::string_view call);

/// Calls and work are named by their place in `calls` and `work`.
struct Timeline {
  static constexpr size_t kNone = SIZE_MAX;

  struct Call {
    size_t row;
    uint32_t lane;
    int64_t start, end;
    std::string_view name;  ///< The trace's, without its vendor.
    bool may_wait = false;
    size_t queue_slot = SIZE_MAX;  ///< The work that must have begun before it returns, if any.
    uint32_t node = 0, last = 0;   ///< The same, unless it may wait.
  };

  struct Work {
    size_t row;
    size_t call;         ///< kNone: issued earlier, or nobody knows by whom.
    int64_t issued;      ///< When its call began.
    int64_t start, end;  ///< Cut at the begin of the graph.
    uint32_t node = 0;
  };

  /// Takes at most the last twelve steady steps that follow each other. Without any there is
  /// neither a call nor work.
  Timeline(const Trace& trace, const Analysis& analysis);

  /// The last work that a stream had been given before a time, and the first from a time on; kNone:
  /// none.
  size_t last_given(uint32_t stream, int64_t before) const;
  size_t first_given(uint32_t stream, int64_t from) const;
  /// How many calls of a thread began before a time.
  size_t calls_before(uint32_t thread, int64_t time) const;
  /// The stream that a thread launched to last before, or next after, its call of this position;
  /// Trace::kNone: none.
  uint32_t stream_before(uint32_t thread, size_t position) const;
  uint32_t stream_after(uint32_t thread, size_t position) const;

  const Trace& trace;
  std::vector<Interval> windows;  ///< The steps, one following the other.
  int64_t begin = 0, end = 0;     ///< Of all windows.
  std::vector<Call> calls;
  std::vector<Work> work;
  std::map<uint32_t, std::vector<size_t>> threads;  ///< By lane: calls, ascending by start.
  std::map<uint32_t, std::vector<size_t>> streams;  ///< By lane: work, ascending by start.
  std::unordered_map<size_t, size_t> call_of_row;   ///< Calls within a call have that one's.
  std::unordered_map<size_t, std::vector<size_t>> work_of_call;

 private:
  void choose_windows(const std::vector<Interval>& all);
  void collect_calls();
  void collect_work(const std::vector<size_t>& launched_by);
  void note_waits();
  void note_full_queue(const std::vector<size_t>& stream);
  /// The stream of what a call launched; Trace::kNone: it launched nothing.
  uint32_t launched_to(size_t call) const;
};

}  // namespace ridge::doctor
