#include "ridge/doctor/replay/edges.h"

namespace ridge::doctor {

namespace {

void order_devices(const Timeline& timeline, DependencyGraph& graph) {
  for (const auto& [lane, stream] : timeline.streams) {
    for (size_t i = 0; i < stream.size(); ++i) {
      const Timeline::Work& work = timeline.work[stream[i]];
      if (work.call != Timeline::kNone)
        graph.add_edge(timeline.calls[work.call].node, work.node, EdgeKind::kLaunch, false);
      else if (i == 0 || work.issued < timeline.begin)
        graph.add_edge(0, work.node, EdgeKind::kLaunch, false);
      if (i == 0) continue;
      const Timeline::Work& before = timeline.work[stream[i - 1]];
      graph.add_edge(before.node, work.node, EdgeKind::kStream);
    }
  }
}

void link_event(const Timeline& timeline,
                const EventWaits& events,
                const Timeline::Call& wait,
                size_t position,
                DependencyGraph& graph) {
  uint32_t waiting = events.named_stream(wait);
  if (waiting == Trace::kNone) waiting = timeline.stream_after(wait.lane, position);
  if (waiting == Trace::kNone) return;
  const Timeline::Call* record = events.record_for(wait, position, waiting);
  if (record == nullptr) return;
  const uint32_t recorded = events.recorded_stream(wait, *record);
  if (recorded == Trace::kNone || recorded == waiting) return;
  const size_t from = timeline.last_given(recorded, record->start);
  const size_t to = timeline.first_given(waiting, wait.start);
  if (from == Timeline::kNone || to == Timeline::kNone) return;
  // What began earlier cannot have waited: another event, or another stream, than was guessed.
  if (timeline.work[from].end > timeline.work[to].start + 1'000) {
    ++graph.contradictions;
    return;
  }
  graph.add_edge(timeline.work[from].node, timeline.work[to].node, EdgeKind::kEvent);
}

void link_events(const Timeline& timeline, const EventWaits& events, DependencyGraph& graph) {
  for (const auto& [lane, thread] : timeline.threads)
    for (size_t position = 0; position < thread.size(); ++position) {
      const Timeline::Call& call = timeline.calls[thread[position]];
      if (call.name.starts_with("StreamWaitEvent"))
        link_event(timeline, events, call, position, graph);
    }
}

void limit_queues(const Timeline& timeline, DependencyGraph& graph) {
  for (const Timeline::Call& call : timeline.calls) {
    if (call.queue_slot == Timeline::kNone) continue;
    const Timeline::Work& begun = timeline.work[call.queue_slot];
    if (begun.start <= call.end) graph.add_edge(begun.node, call.last, EdgeKind::kQueue, false);
  }
}

}  // namespace

void add_device_edges(const Timeline& timeline, const EventWaits& events, DependencyGraph& graph) {
  order_devices(timeline, graph);
  link_events(timeline, events, graph);
  limit_queues(timeline, graph);
}

}  // namespace ridge::doctor
