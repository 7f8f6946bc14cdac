#include <algorithm>

#include "ridge/doctor/replay/edges.h"

namespace ridge::doctor {

namespace {

using Call = Timeline::Call;
using Work = Timeline::Work;

// Shorter silences of a thread are not told from the locks of an interpreter.
constexpr int64_t kHandOverNs = 100'000;
// Recorders round, and the clocks of host and device differ a little.
constexpr int64_t kClockNs = 1'000;
constexpr int64_t kLongWaitNs = 50'000;

class HostEdges {
 public:
  HostEdges(const Timeline& timeline, const EventWaits& events, DependencyGraph& graph)
      : timeline_(timeline), events_(events), graph_(graph) {}

  void order_threads();
  void hand_over();
  void mark_steps();
  void await_results();

 private:
  void hand_over_in(uint32_t lane, size_t next);
  void await(size_t index);
  void await_stream(const Call& call, uint32_t lane, int64_t before);
  void guess_awaited(const Call& call, const std::vector<size_t>& work_by_end);
  /// Adds an edge of a thread whose lag is all the time between the two nodes.
  void follow(uint32_t before, uint32_t node, bool from_end = true);

  const Timeline& timeline_;
  const EventWaits& events_;
  DependencyGraph& graph_;
};

void HostEdges::follow(uint32_t before, uint32_t node, bool from_end) {
  if (!graph_.add_edge(before, node, EdgeKind::kThread, from_end)) return;
  Edge& edge = graph_.nodes[node].after.back();
  edge.lag_ns = std::max<int64_t>(0, graph_.nodes[node].start_ns - graph_.measured(edge));
}

void HostEdges::order_threads() {
  for (const auto& [lane, thread] : timeline_.threads) {
    uint32_t before = 0;  // The origin.
    for (const size_t index : thread) {
      const Call& call = timeline_.calls[index];
      // Calls that overlap, which only a broken recording has, keep the order of their starts.
      const int64_t end = graph_.nodes[before].start_ns + graph_.nodes[before].duration_ns;
      follow(before, call.node, before == 0 || end <= call.start);
      before = call.last;
      if (call.may_wait) graph_.add_edge(call.node, call.last, EdgeKind::kThread);
    }
  }
}

void HostEdges::hand_over() {
  for (const auto& [lane, thread] : timeline_.threads)
    for (size_t next = 1; next < thread.size(); ++next)
      if (timeline_.calls[thread[next]].start - timeline_.calls[thread[next - 1]].end >=
          kHandOverNs)
        hand_over_in(lane, next);
}

// A thread is silent while another works that was silent before and is again after it: such are
// the forward and the backward thread of PyTorch. The one goes on when the other has finished.
void HostEdges::hand_over_in(uint32_t lane, size_t next) {
  const auto& calls = timeline_.calls;
  const auto& own = timeline_.threads.at(lane);
  const Call &stops = calls[own[next - 1]], &resumes = calls[own[next]];
  for (const auto& [other, thread] : timeline_.threads) {
    if (other == lane) continue;
    const size_t first = timeline_.calls_before(other, stops.end);
    const size_t after = timeline_.calls_before(other, resumes.start);
    if (first >= after) continue;
    const Call &begins = calls[thread[first]], &ends = calls[thread[after - 1]];
    if (first > 0 && calls[thread[first - 1]].end > stops.end) continue;
    if (ends.end > resumes.start) continue;
    if (ends.end - begins.start < (resumes.start - stops.end) / 2) continue;
    const auto link = [&](const Call& from, const Call& to) {
      for (Edge& edge : graph_.nodes[to.node].after) edge.lag_ns = 0;
      if (graph_.add_edge(from.last, to.node, EdgeKind::kHandOver))
        graph_.nodes[to.node].after.back().lag_ns = std::max<int64_t>(0, to.start - from.end);
    };
    link(stops, begins);
    link(ends, resumes);
    return;
  }
}

// A step ends where the program says so: some time after the call that ended last before.
void HostEdges::mark_steps() {
  for (uint32_t number = 0; number < graph_.nodes.size(); ++number) {
    const Node& mark = graph_.nodes[number];
    if (mark.kind != Node::Kind::kMark) continue;
    const Call* last = nullptr;
    for (const auto& [lane, thread] : timeline_.threads) {
      const auto after = std::partition_point(thread.begin(), thread.end(), [&](size_t call) {
        return timeline_.calls[call].end <= mark.start_ns;
      });
      if (after == thread.begin()) continue;
      const Call& call = timeline_.calls[*(after - 1)];
      if (last == nullptr || call.end > last->end) last = &call;
    }
    follow(last == nullptr ? 0 : last->last, number);
  }
}

void HostEdges::await_stream(const Call& call, uint32_t lane, int64_t before) {
  const size_t work = timeline_.last_given(lane, before);
  if (work == Timeline::kNone || timeline_.work[work].end > call.end + kClockNs) return;
  graph_.add_edge(timeline_.work[work].node, call.last, EdgeKind::kAwait);
}

void HostEdges::await(size_t index) {
  const Call& call = timeline_.calls[index];
  const auto position = [&] { return timeline_.calls_before(call.lane, call.start); };
  if (waits_for_device(call.name)) {
    for (const auto& [lane, stream] : timeline_.streams) await_stream(call, lane, call.start);
  } else if (call.name.starts_with("StreamSynchronize")) {
    uint32_t lane = events_.named_stream(call);
    if (lane == Trace::kNone) lane = timeline_.stream_before(call.lane, position());
    if (lane != Trace::kNone) await_stream(call, lane, call.start);
  } else if (call.name.starts_with("EventSynchronize")) {
    const Call* record = events_.record_for(call, position(), Trace::kNone);
    if (record == nullptr) return;
    const uint32_t lane = events_.recorded_stream(call, *record);
    if (lane != Trace::kNone) await_stream(call, lane, record->start);
  } else if (const auto own = timeline_.work_of_call.find(index);
             own != timeline_.work_of_call.end()) {
    // Whether a copy holds the host is seen by its times: pinned memory does not.
    const Work& copy = timeline_.work[own->second.back()];
    if (timeline_.trace.kind[copy.row] == EventKind::kCopy && copy.end <= call.end)
      graph_.add_edge(copy.node, call.last, EdgeKind::kAwait);
  }
}

// Who waited long, for something that was asked for before the first step or that the recorder does
// not tell, and returned right after some work had ended, waited for that.
void HostEdges::guess_awaited(const Call& call, const std::vector<size_t>& work_by_end) {
  if (call.end - call.start < kLongWaitNs || !call.name.ends_with("Synchronize")) return;
  const auto& after = graph_.nodes[call.last].after;
  if (std::any_of(after.begin(), after.end(), [](const Edge& edge) {
        return edge.kind == EdgeKind::kAwait;
      }))
    return;
  const auto ended = std::partition_point(work_by_end.begin(), work_by_end.end(), [&](size_t at) {
    return timeline_.work[at].end <= call.end;
  });
  if (ended == work_by_end.begin()) return;
  const Work& work = timeline_.work[*(ended - 1)];
  if (work.end > call.start && call.end - work.end <= kLongWaitNs)
    graph_.add_edge(work.node, call.last, EdgeKind::kAwait);
}

void HostEdges::await_results() {
  std::vector<size_t> work_by_end;
  for (size_t work = 0; work < timeline_.work.size(); ++work) work_by_end.push_back(work);
  std::sort(work_by_end.begin(), work_by_end.end(), [&](size_t a, size_t b) {
    return std::pair(timeline_.work[a].end, a) < std::pair(timeline_.work[b].end, b);
  });
  for (size_t index = 0; index < timeline_.calls.size(); ++index) {
    if (!timeline_.calls[index].may_wait) continue;
    await(index);
    guess_awaited(timeline_.calls[index], work_by_end);
  }
}

}  // namespace

void add_host_edges(const Timeline& timeline, const EventWaits& events, DependencyGraph& graph) {
  HostEdges edges(timeline, events, graph);
  edges.order_threads();
  edges.hand_over();
  edges.mark_steps();
  edges.await_results();
}

}  // namespace ridge::doctor
