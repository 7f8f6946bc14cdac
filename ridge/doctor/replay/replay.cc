// The replay itself, and what it says of a step.
#include "ridge/doctor/replay/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace ridge::doctor {

std::vector<int64_t> replay(const DependencyGraph& graph) {
  std::vector<int64_t> starts(graph.nodes.size());
  const int64_t begin = graph.nodes.empty() ? 0 : graph.nodes.front().start_ns;
  for (size_t number = 0; number < graph.nodes.size(); ++number) {
    int64_t start = begin;
    for (const Edge& edge : graph.nodes[number].after) {
      const int64_t from =
          starts[edge.from] + (edge.from_end ? graph.nodes[edge.from].duration_ns : 0);
      start = std::max(start, from + edge.lag_ns);
    }
    starts[number] = start;
  }
  return starts;
}

double step_ms(const DependencyGraph& graph, std::span<const int64_t> starts) {
  const size_t count = graph.windows.size();
  if (count == 0) return 0;
  std::vector<int64_t> finished(count + 1, graph.windows.front().begin);
  for (size_t number = 0; number < graph.nodes.size(); ++number) {
    const Node& node = graph.nodes[number];
    if (node.kind != Node::Kind::kDevice && node.kind != Node::Kind::kMark) continue;
    int64_t& last = finished[static_cast<size_t>(int64_t{node.step} + 1)];
    last = std::max(last, starts[number] + node.duration_ns);
  }
  for (size_t step = 1; step <= count; ++step)
    finished[step] = std::max(finished[step], finished[step - 1]);
  const size_t first = count >= 3 ? std::min<size_t>(4, count / 2) : 0;
  return static_cast<double>(finished[count] - finished[first]) / 1e6 /
         static_cast<double>(count - first);
}

double ReplayedStep::error() const {
  return measured_ms > 0 ? std::abs(replayed_ms - measured_ms) / measured_ms : 1;
}

ReplayedStep replayed_step(const DependencyGraph& graph) {
  // The node of a call that waited has only the call's own part; the measured time includes its
  // return.
  std::vector<int64_t> measured;
  measured.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) measured.push_back(node.start_ns);
  return {step_ms(graph, measured), step_ms(graph, replay(graph))};
}

void replay_steps(const Trace& trace, Analysis& analysis) {
  auto graph = build_dependencies(trace, analysis);
  if (!graph) return;
  const ReplayedStep step = replayed_step(*graph);
  analysis.replay = std::make_shared<const Replay>(Replay{std::move(*graph), step});
  analysis.replay_error = step.error();
}

Analysis analyse_and_replay(const Trace& trace) {
  Analysis analysis = analyse(trace);
  replay_steps(trace, analysis);
  return analysis;
}

Gain gain_between(const ReplayedStep& before, double after_ms, double ceiling, double model_error) {
  if (!(before.replayed_ms > 0) || !(after_ms > 0)) return {1, 1};
  const double most = std::max(1.0, ceiling);
  const double gain = std::min(most, before.replayed_ms / after_ms);
  const double bar = std::hypot(before.error() * gain, model_error * (gain - 1));
  return {std::clamp(gain - bar, 1.0, most), std::clamp(gain + bar, 1.0, most)};
}

}  // namespace ridge::doctor
