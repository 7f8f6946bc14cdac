// Changes to a dependency graph.
#include <algorithm>

#include "ridge/doctor/replay/replay.h"

namespace ridge::doctor {

namespace {

// Host time of launching a captured graph, and of a call that does not wait.
constexpr int64_t kGraphLaunchNs = 10'000;
constexpr int64_t kPromptCallNs = 5'000;
// Device time from one node of a graph, or copy of a stream, to the next.
constexpr int64_t kGraphNodeNs = 1'000;

bool is_host(const Node& node) {
  return node.kind == Node::Kind::kCall || node.kind == Node::Kind::kReturn ||
         node.kind == Node::Kind::kMark;
}

}  // namespace

bool WhatIf::drop_wait(size_t call_row) {
  const auto back = graph_.return_of.find(call_row);
  if (back == graph_.return_of.end()) return false;
  auto& after = graph_.nodes[back->second].after;
  const size_t dropped =
      std::erase_if(after, [](const Edge& edge) { return edge.kind == EdgeKind::kAwait; });
  if (dropped == 0) return false;
  Node& call = graph_.nodes[graph_.node_of.at(call_row)];
  call.duration_ns = std::min(call.duration_ns, kPromptCallNs);
  return true;
}

void WhatIf::capture(Interval at, const Intervals& kept) {
  int32_t step = -2;
  bool has_graph = false;  // In this step, since the last wait.
  for (Node& node : graph_.nodes) {
    if (node.start_ns < at.begin || node.start_ns > at.end) continue;
    if (node.kind == Node::Kind::kDevice) {
      for (Edge& edge : node.after) edge.lag_ns = std::min(edge.lag_ns, kGraphNodeNs);
      continue;
    }
    if (!is_host(node)) continue;
    const bool waits = std::any_of(node.after.begin(), node.after.end(), [](const Edge& edge) {
      return edge.kind == EdgeKind::kAwait;
    });
    if (node.kind == Node::Kind::kReturn) {
      if (waits) has_graph = false;
      continue;
    }
    for (Edge& edge : node.after) {
      const Interval think{node.start_ns - edge.lag_ns, node.start_ns};
      const int64_t before = Interval{think.begin, std::min(think.end, at.begin)}.length();
      edge.lag_ns = before + total_length(clipped(kept, think));
    }
    if (node.kind == Node::Kind::kMark) continue;
    if (node.step != step) has_graph = false;
    step = node.step;
    node.duration_ns = has_graph ? 0 : kGraphLaunchNs;
    has_graph = true;
  }
}

void WhatIf::index_followers() {
  if (!followers_.empty()) return;
  followers_.resize(graph_.nodes.size());
  for (uint32_t number = 0; number < graph_.nodes.size(); ++number)
    for (const Edge& edge : graph_.nodes[number].after) followers_[edge.from].push_back(number);
}

// A node that came after the copy comes after what the copy came after.
void WhatIf::release(uint32_t follower, uint32_t copy, const std::vector<Edge>& before) {
  Node& node = graph_.nodes[follower];
  const auto held = std::find_if(node.after.begin(), node.after.end(), [copy](const Edge& edge) {
    return edge.from == copy && edge.from_end;
  });
  if (held == node.after.end()) return;
  const Edge edge = *held;
  node.after.erase(held);
  const auto& launched = graph_.nodes[copy].after;
  const bool is_own = std::any_of(launched.begin(), launched.end(), [&](const Edge& launch) {
    return launch.kind == EdgeKind::kLaunch && graph_.nodes[launch.from].row == node.row;
  });
  if (node.kind == Node::Kind::kReturn && is_own) {
    Node& call = graph_.nodes[graph_.node_of.at(node.row)];
    call.duration_ns = std::min(call.duration_ns, kPromptCallNs);
    return;
  }
  for (Edge earlier : before) {
    if (node.kind == Node::Kind::kReturn) {
      earlier.kind = edge.kind;
      earlier.lag_ns = edge.lag_ns;
    }
    node.after.push_back(earlier);
    followers_[earlier.from].push_back(follower);
  }
}

void WhatIf::move_to_own_stream(size_t copy_row, bool after_producer) {
  const auto found = graph_.node_of.find(copy_row);
  if (found == graph_.node_of.end()) return;
  index_followers();
  const uint32_t moved = found->second;
  Node& copy = graph_.nodes[moved];
  std::vector<Edge> before;
  uint32_t caller = moved;
  for (const Edge& edge : copy.after) {
    if (edge.kind == EdgeKind::kLaunch) caller = edge.from;
    if (edge.kind == EdgeKind::kStream || edge.kind == EdgeKind::kEvent) before.push_back(edge);
  }
  for (const uint32_t follower : std::vector(followers_[moved])) {
    // A return that waits for a result copied to the host still does, except that of the copying
    // call.
    const Node& node = graph_.nodes[follower];
    const bool wants_result =
        after_producer && node.kind == Node::Kind::kReturn && graph_.node_of.at(node.row) != caller;
    if (!wants_result) release(follower, moved, before);
  }
  if (!after_producer)
    std::erase_if(copy.after, [](const Edge& edge) { return edge.kind != EdgeKind::kLaunch; });
  std::optional<uint32_t>& last = last_moved_[after_producer];
  if (last && *last < moved) {
    copy.after.push_back({*last, EdgeKind::kStream, true, kGraphNodeNs});
    followers_[*last].push_back(moved);
  }
  last = moved;
}

void WhatIf::set_duration(size_t device_row, int64_t duration_ns) {
  const auto found = graph_.node_of.find(device_row);
  if (found != graph_.node_of.end())
    graph_.nodes[found->second].duration_ns = std::max<int64_t>(0, duration_ns);
}

void WhatIf::scale_duration(size_t device_row, double factor) {
  const auto found = graph_.node_of.find(device_row);
  if (found == graph_.node_of.end()) return;
  const auto duration = static_cast<double>(graph_.nodes[found->second].duration_ns);
  set_duration(device_row, static_cast<int64_t>(duration * factor));
}

void WhatIf::fuse(std::span<const size_t> device_rows, int64_t duration_ns) {
  std::optional<uint32_t> kept_call;
  bool is_first = true;
  for (const size_t row : device_rows) {
    const auto found = graph_.node_of.find(row);
    if (found == graph_.node_of.end()) continue;
    set_duration(row, is_first ? duration_ns : 0);
    for (Edge& edge : graph_.nodes[found->second].after) {
      const bool launches = edge.kind == EdgeKind::kLaunch;
      if (is_first && launches) kept_call = edge.from;
      if (is_first) continue;
      edge.lag_ns = 0;
      if (launches && kept_call != edge.from) graph_.nodes[edge.from].duration_ns = 0;
    }
    is_first = false;
  }
}

void WhatIf::shorten_call(size_t call_row, int64_t duration_ns) {
  const auto found = graph_.node_of.find(call_row);
  if (found == graph_.node_of.end()) return;
  drop_wait(call_row);
  Node& call = graph_.nodes[found->second];
  call.duration_ns = std::min(call.duration_ns, duration_ns);
}

void WhatIf::remove_host_time(const Intervals& stretches) {
  for (Node& node : graph_.nodes) {
    if (node.kind != Node::Kind::kCall && node.kind != Node::Kind::kMark) continue;
    for (Edge& edge : node.after) {
      const Interval think{node.start_ns - edge.lag_ns, node.start_ns};
      edge.lag_ns -= total_length(clipped(stretches, think));
    }
  }
}

double WhatIf::step_ms() const { return doctor::step_ms(graph_, replay(graph_)); }

}  // namespace ridge::doctor
