// The lags of edges: how long after what allows it a node starts.
#include <algorithm>

#include "ridge/doctor/replay/edges.h"

namespace ridge::doctor {

namespace {

// A lag that is longer than the usual one by more than this is a wait for something that is not in
// the graph. It is left out of the replay, which then shows by its error that the graph lacks it.
constexpr int64_t kLaunchSlackNs = 50'000;
constexpr int64_t kStreamSlackNs = 20'000;
constexpr int64_t kReturnSlackNs = 100'000;

int64_t median_of(std::vector<int64_t>& values, int64_t otherwise) {
  if (values.empty()) return otherwise;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool is_wait(EdgeKind kind) { return kind == EdgeKind::kAwait || kind == EdgeKind::kQueue; }

class LagFitter {
 public:
  LagFitter(const Trace& trace, DependencyGraph& graph) : trace_(trace), graph_(graph) {}

  void estimate_lags();
  void fit_device(Node& node) const;
  void fit_return(Node& node);

 private:
  int64_t measured(const Edge& edge) const { return graph_.measured(edge); }

  const Trace& trace_;
  DependencyGraph& graph_;
  int64_t launch_lag_ = 0, stream_lag_ = 0, return_lag_ = 0;
};

// The usual lags are those of work that only one thing can have held: its launch came after all
// else was done, or long before.
void LagFitter::estimate_lags() {
  const int64_t begin = graph_.nodes.front().start_ns;
  std::vector<int64_t> launches, streams, returns;
  for (const Node& node : graph_.nodes) {
    int64_t launch = INT64_MIN, returned = INT64_MIN, other = INT64_MIN, awaited = INT64_MIN;
    for (const Edge& edge : node.after) {
      if (edge.kind == EdgeKind::kLaunch) {
        launch = measured(edge);
        returned = launch + graph_.nodes[edge.from].duration_ns;
      } else if (is_wait(edge.kind)) {
        awaited = std::max(awaited, measured(edge));
      } else {
        other = std::max(other, measured(edge));
      }
    }
    if (node.kind == Node::Kind::kDevice && launch != INT64_MIN && launch > begin) {
      if (launch > other) launches.push_back(node.start_ns - launch);
      if (other > returned) streams.push_back(node.start_ns - other);
    }
    if (node.kind == Node::Kind::kReturn && awaited != INT64_MIN &&
        awaited > graph_.nodes[node.after.front().from].start_ns)
      returns.push_back(node.start_ns - awaited);
  }
  launch_lag_ = std::clamp<int64_t>(median_of(launches, 5'000), 0, 50'000);
  stream_lag_ = std::clamp<int64_t>(median_of(streams, 1'000), 0, 10'000);
  return_lag_ = std::clamp<int64_t>(median_of(returns, 5'000), 0, 20'000);
}

void LagFitter::fit_device(Node& node) const {
  const auto usual = [&](const Edge& edge) {
    return edge.kind == EdgeKind::kLaunch && edge.from != 0 ? launch_lag_ : stream_lag_;
  };
  const auto last =
      std::max_element(node.after.begin(), node.after.end(), [&](const Edge& a, const Edge& b) {
        return measured(a) + usual(a) < measured(b) + usual(b);
      });
  for (auto edge = node.after.begin(); edge != node.after.end(); ++edge) {
    // A call that takes its time, to load code say, starts its work when it has done so.
    int64_t most = usual(*edge);
    if (edge == last)
      most += edge->kind == EdgeKind::kLaunch
                  ? kLaunchSlackNs + graph_.nodes[edge->from].duration_ns
                  : kStreamSlackNs;
    edge->lag_ns = std::clamp<int64_t>(node.start_ns - measured(*edge), 0, most);
  }
}

void LagFitter::fit_return(Node& node) {
  Node& call = graph_.nodes[node.after.front().from];
  const int64_t duration = call.duration_ns;
  Edge* last = nullptr;
  for (Edge& edge : node.after)
    if (is_wait(edge.kind) && (last == nullptr || measured(edge) > measured(*last))) last = &edge;
  const bool is_copy = without_vendor(trace_.name_text(node.row)).starts_with("Memcpy");
  const bool has_waited = last != nullptr && measured(*last) > call.start_ns;
  for (Edge& edge : node.after) {
    if (!is_wait(edge.kind)) continue;
    const int64_t slack = node.start_ns - measured(edge);
    const int64_t usual = edge.kind == EdgeKind::kQueue ? 0 : return_lag_;
    int64_t most = usual;
    if (&edge == last && has_waited) most = is_copy ? slack : usual + kReturnSlackNs;
    edge.lag_ns = std::clamp<int64_t>(slack, 0, std::max<int64_t>(0, most));
  }
  if (has_waited) call.duration_ns = std::min(duration, return_lag_);
}

}  // namespace

void fit_lags(const Trace& trace, DependencyGraph& graph) {
  LagFitter fitter(trace, graph);
  fitter.estimate_lags();
  for (Node& node : graph.nodes)
    if (node.kind == Node::Kind::kDevice) fitter.fit_device(node);
  // Last, since these cut the durations of calls.
  for (Node& node : graph.nodes)
    if (node.kind == Node::Kind::kReturn) fitter.fit_return(node);
}

}  // namespace ridge::doctor
