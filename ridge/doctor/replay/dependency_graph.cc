#include "ridge/doctor/replay/dependency_graph.h"

#include <algorithm>
#include <tuple>

#include "ridge/doctor/replay/edges.h"

namespace ridge::doctor {

namespace {

constexpr size_t kMostRows = 2'000'000;

// At equal times what ends a wait comes before what waited, and both before the next call.
int rank_of(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kOrigin:
      return 0;
    case Node::Kind::kDevice:
      return 1;
    case Node::Kind::kReturn:
      return 2;
    case Node::Kind::kCall:
      return 3;
    case Node::Kind::kMark:
      return 4;
  }
  return 5;
}

int32_t step_at(const std::vector<Interval>& windows, int64_t time) {
  const auto after = std::upper_bound(
      windows.begin(), windows.end(), time, [](int64_t at, Interval w) { return at < w.begin; });
  return static_cast<int32_t>(after - windows.begin()) - 1;
}

// Gives the calls and the work of the timeline the numbers of their nodes, in the order of time.
DependencyGraph nodes_of(Timeline& timeline) {
  DependencyGraph graph;
  graph.windows = timeline.windows;
  struct Made {
    Node node;
    int64_t at;
    uint32_t* number;
  };
  std::vector<Made> made;
  uint32_t origin = 0;
  made.push_back({{.start_ns = timeline.begin}, timeline.begin - 1, &origin});
  for (Timeline::Call& call : timeline.calls) {
    const Node node{Node::Kind::kCall,
                    step_at(graph.windows, call.start),
                    call.lane,
                    call.row,
                    call.start,
                    call.end - call.start,
                    {}};
    made.push_back({node, call.start, &call.node});
    if (!call.may_wait) continue;
    Node back = node;
    back.kind = Node::Kind::kReturn;
    back.start_ns = call.end;
    back.duration_ns = 0;
    made.push_back({back, call.end, &call.last});
  }
  for (Timeline::Work& work : timeline.work) {
    // The clocks of host and device differ a little: work is never before its call here.
    const bool is_own = work.call != Timeline::kNone;
    const int64_t at = is_own ? std::max(work.start, work.issued + 1) : work.start;
    made.push_back({{Node::Kind::kDevice,
                     step_at(graph.windows, work.issued),
                     timeline.trace.lane[work.row],
                     work.row,
                     work.start,
                     work.end - work.start,
                     {}},
                    at,
                    &work.node});
  }
  for (size_t step = 0; step < graph.windows.size(); ++step)
    made.push_back({{.kind = Node::Kind::kMark,
                     .step = static_cast<int32_t>(step),
                     .start_ns = graph.windows[step].end},
                    graph.windows[step].end,
                    nullptr});
  std::sort(made.begin(), made.end(), [](const Made& a, const Made& b) {
    return std::tuple(a.at, rank_of(a.node.kind), a.node.row) <
           std::tuple(b.at, rank_of(b.node.kind), b.node.row);
  });
  for (Made& each : made) {
    if (each.number != nullptr) *each.number = static_cast<uint32_t>(graph.nodes.size());
    graph.nodes.push_back(std::move(each.node));
  }
  for (Timeline::Call& call : timeline.calls) {
    graph.node_of[call.row] = call.node;
    if (call.may_wait)
      graph.return_of[call.row] = call.last;
    else
      call.last = call.node;
  }
  for (const Timeline::Work& work : timeline.work) graph.node_of[work.row] = work.node;
  for (const auto& [row, call] : timeline.call_of_row) {
    graph.node_of[row] = timeline.calls[call].node;
    if (timeline.calls[call].may_wait) graph.return_of[row] = timeline.calls[call].last;
  }
  return graph;
}

}  // namespace

uint32_t DependencyGraph::last_of(size_t row) const {
  const auto found = return_of.find(row);
  return found != return_of.end() ? found->second : node_of.at(row);
}

int64_t DependencyGraph::measured(const Edge& edge) const {
  const Node& from = nodes[edge.from];
  return from.start_ns + (edge.from_end ? from.duration_ns : 0);
}

bool DependencyGraph::add_edge(uint32_t from, uint32_t to, EdgeKind kind, bool from_end) {
  if (from >= to) {
    ++contradictions;
    return false;
  }
  nodes[to].after.push_back({from, kind, from_end, 0});
  return true;
}

std::optional<DependencyGraph> build_dependencies(const Trace& trace, const Analysis& analysis) {
  Timeline timeline(trace, analysis);
  const size_t calls = timeline.calls.size(), work = timeline.work.size();
  if (calls == 0 || work == 0 || calls + work > kMostRows) return std::nullopt;
  DependencyGraph graph = nodes_of(timeline);
  const EventWaits events(timeline);
  add_host_edges(timeline, events, graph);
  add_device_edges(timeline, events, graph);
  fit_lags(trace, graph);
  return graph;
}

}  // namespace ridge::doctor
