// Makes a DependencyGraph; for the files dependency_*.cc alone.
#pragma once

#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ridge/doctor/replay/dependency_graph.h"

namespace ridge::doctor {

/// "StreamSynchronize" of cudaStreamSynchronize, hipStreamSynchronize or cuStreamSynchronize.
std::string_view without_vendor(std::string_view call);

class DependencyBuilder {
 public:
  DependencyBuilder(const Trace& trace, const Analysis& analysis);
  /// False where there is nothing to build of.
  bool collect();
  DependencyGraph build();

 private:
  struct Call {
    size_t row;
    uint32_t lane;
    int64_t start, end;
    uint32_t node = 0, last = 0;  ///< The same, unless it may wait.
    bool may_wait = false;
  };
  struct Work {
    size_t row;
    size_t call;         ///< In calls_, or kNoCall: issued earlier, or nobody knows by whom.
    int64_t issued;      ///< When its call began.
    int64_t start, end;  ///< Cut at the begin of the graph.
    uint32_t node = 0;
  };
  using Stream = std::vector<size_t>;  ///< Of work_, ascending by start.
  static constexpr size_t kNoCall = SIZE_MAX;

  // dependency_graph.cc
  void choose_windows();
  void collect_calls();
  void collect_work();
  void note_waits();
  void make_nodes();
  int32_t step_at(int64_t time) const;
  bool add_edge(uint32_t from, uint32_t to, EdgeKind kind, bool from_end = true);

  // dependency_host.cc
  void order_threads();
  void hand_over();
  void hand_over_in(uint32_t lane, size_t next);
  void await_results();
  void await(Call& call);
  void guess_awaited(const Call& call);
  void await_stream(const Call& call, uint32_t lane, int64_t before);
  void mark_steps();

  // dependency_device.cc
  void order_devices();
  void link_events();
  void link_event(const Call& wait, size_t position);
  void limit_queues();
  /// What the recorder says that a call waited for; null: nothing.
  const Sync* told_of(const Call& call) const;
  /// The stream that waited, or was waited for, as the recorder says; kNone: it does not.
  uint32_t told_stream(const Call& call) const;
  /// The stream that an event was recorded on.
  uint32_t recorded_stream(const Call& wait, const Call& record) const;
  size_t position_of(const Call& call) const;
  const Call* record_for(const Call& wait, size_t position, uint32_t waiting) const;
  /// The last work that a stream had been given before a time; kNoCall: none.
  size_t last_given(uint32_t lane, int64_t before) const;
  size_t first_given(uint32_t lane, int64_t from) const;
  /// The stream that a thread launched to last before, or next after, one of its calls.
  uint32_t stream_before(uint32_t lane, size_t position) const;
  uint32_t stream_after(uint32_t lane, size_t position) const;

  // dependency_lags.cc
  void fit_lags();
  void estimate_lags();
  void fit_device(Node& node);
  void fit_return(Node& node);
  int64_t measured(const Edge& edge) const;

  const Trace& trace_;
  const Analysis& analysis_;
  DependencyGraph graph_;
  int64_t begin_ = 0, end_ = 0;
  std::vector<Call> calls_;
  std::vector<Work> work_;
  std::map<uint32_t, std::vector<size_t>> threads_;  ///< By lane: of calls_, ascending.
  std::map<uint32_t, Stream> streams_;               ///< By lane.
  std::unordered_map<size_t, size_t> call_of_row_;
  std::unordered_map<int64_t, size_t> sync_of_;  ///< By correlation: row.
  std::unordered_map<int64_t, size_t> call_of_correlation_;
  std::unordered_map<size_t, std::vector<size_t>> work_of_call_;
  std::unordered_map<size_t, int64_t> queue_slot_;  ///< By call: work that must have begun.
  std::vector<size_t> work_by_end_;
  int64_t launch_lag_ = 5'000, stream_lag_ = 1'000, return_lag_ = 5'000;
};

}  // namespace ridge::doctor
