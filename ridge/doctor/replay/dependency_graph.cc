// The nodes of the graph: which steps, calls and device work it is of, and their order.
#include "ridge/doctor/replay/dependency_graph.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "ridge/doctor/replay/dependency_builder.h"

namespace ridge::doctor {

namespace {

constexpr size_t kMostWindows = 12;
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

}  // namespace

uint32_t DependencyGraph::last_of(size_t row) const {
  const auto found = return_of.find(row);
  return found != return_of.end() ? found->second : node_of.at(row);
}

std::string_view without_vendor(std::string_view call) {
  for (const std::string_view vendor : {"cuda", "hip", "cu"})
    if (call.starts_with(vendor)) return call.substr(vendor.size());
  return call;
}

DependencyBuilder::DependencyBuilder(const Trace& trace, const Analysis& analysis)
    : trace_(trace), analysis_(analysis) {}

void DependencyBuilder::choose_windows() {
  // The longest run of steps with next to nothing between them: what lies between is no step.
  const auto& all = analysis_.steps.windows;
  size_t best = 0, best_count = 0;
  for (size_t first = 0; first < all.size();) {
    size_t last = first;
    while (last + 1 < all.size() &&
           all[last + 1].begin - all[last].end <= all[last].length() / 20 + 1'000)
      ++last;
    if (last - first + 1 > best_count) {
      best = first;
      best_count = last - first + 1;
    }
    first = last + 1;
  }
  const size_t count = std::min(best_count, kMostWindows);
  const auto from = all.begin() + static_cast<ptrdiff_t>(best + best_count - count);
  graph_.windows.assign(from, from + static_cast<ptrdiff_t>(count));
  if (graph_.windows.empty()) return;
  begin_ = graph_.windows.front().begin;
  end_ = graph_.windows.back().end;
}

int32_t DependencyBuilder::step_at(int64_t time) const {
  if (time < begin_) return -1;
  const auto& windows = graph_.windows;
  const auto after = std::upper_bound(
      windows.begin(), windows.end(), time, [](int64_t at, Interval w) { return at < w.begin; });
  return static_cast<int32_t>(after - windows.begin()) - 1;
}

void DependencyBuilder::collect_calls() {
  for (size_t row = 0; row < trace_.size(); ++row) {
    const int64_t start = trace_.start_ns[row];
    if (start >= end_) break;
    if (trace_.kind[row] != EventKind::kRuntime || start < begin_) continue;
    auto& thread = threads_[trace_.lane[row]];
    // A call of the driver within one of the runtime is the same call.
    if (!thread.empty() && trace_.end_ns(row) <= calls_[thread.back()].end &&
        start < calls_[thread.back()].end) {
      call_of_row_[row] = thread.back();
    } else {
      thread.push_back(calls_.size());
      call_of_row_[row] = calls_.size();
      calls_.push_back({row, trace_.lane[row], start, trace_.end_ns(row)});
    }
    if (trace_.correlation[row] >= 0)
      call_of_correlation_.emplace(trace_.correlation[row], call_of_row_[row]);
  }
}

void DependencyBuilder::collect_work() {
  for (size_t row = 0; row < trace_.size(); ++row) {
    if (trace_.kind[row] == EventKind::kSynchronization && trace_.correlation[row] >= 0)
      sync_of_.emplace(trace_.correlation[row], row);
    if (!is_device_work(trace_.kind[row]) || trace_.end_ns(row) <= begin_) continue;
    const size_t caller =
        row < analysis_.launched_by.size() ? analysis_.launched_by[row] : SIZE_MAX;
    const bool is_known = caller < trace_.size();
    const auto call = is_known ? call_of_row_.find(caller) : call_of_row_.end();
    if (call == call_of_row_.end() && trace_.start_ns[row] >= end_) continue;
    if (call == call_of_row_.end() && is_known && trace_.start_ns[caller] >= end_) continue;
    const int64_t start = std::max(begin_, trace_.start_ns[row]);
    Work work{row, kNoCall, start, start, trace_.end_ns(row)};
    if (call != call_of_row_.end()) {
      work.call = call->second;
      work_of_call_[work.call].push_back(work_.size());
    }
    if (is_known) work.issued = trace_.start_ns[caller];
    streams_[trace_.lane[row]].push_back(work_.size());
    work_.push_back(work);
  }
}

bool DependencyBuilder::collect() {
  choose_windows();
  if (graph_.windows.empty() || end_ <= begin_) return false;
  collect_calls();
  collect_work();
  return !work_.empty() && !calls_.empty() && calls_.size() + work_.size() <= kMostRows;
}

void DependencyBuilder::make_nodes() {
  struct Made {
    Node node;
    int64_t at;
    uint32_t* number;
  };
  std::vector<Made> made;
  uint32_t origin = 0;
  made.push_back({{.start_ns = begin_}, begin_ - 1, &origin});
  for (Call& call : calls_) {
    const Node node{Node::Kind::kCall,
                    step_at(call.start),
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
  for (Work& work : work_) {
    // The clocks of host and device differ a little: work is never before its call here.
    const bool is_own = work.call != kNoCall;
    const int64_t at = is_own ? std::max(work.start, work.issued + 1) : work.start;
    made.push_back({{Node::Kind::kDevice,
                     step_at(work.issued),
                     trace_.lane[work.row],
                     work.row,
                     work.start,
                     work.end - work.start,
                     {}},
                    at,
                    &work.node});
  }
  for (size_t step = 0; step < graph_.windows.size(); ++step)
    made.push_back({{.kind = Node::Kind::kMark,
                     .step = static_cast<int32_t>(step),
                     .start_ns = graph_.windows[step].end},
                    graph_.windows[step].end,
                    nullptr});
  std::sort(made.begin(), made.end(), [](const Made& a, const Made& b) {
    return std::tuple(a.at, rank_of(a.node.kind), a.node.row) <
           std::tuple(b.at, rank_of(b.node.kind), b.node.row);
  });
  for (Made& each : made) {
    if (each.number != nullptr) *each.number = static_cast<uint32_t>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(each.node));
  }
  for (Call& call : calls_) {
    graph_.node_of[call.row] = call.node;
    if (call.may_wait)
      graph_.return_of[call.row] = call.last;
    else
      call.last = call.node;
  }
  for (const Work& work : work_) graph_.node_of[work.row] = work.node;
  for (const auto& [row, call] : call_of_row_) {
    graph_.node_of[row] = calls_[call].node;
    if (calls_[call].may_wait) graph_.return_of[row] = calls_[call].last;
  }
}

bool DependencyBuilder::add_edge(uint32_t from, uint32_t to, EdgeKind kind, bool from_end) {
  if (from >= to) {
    ++graph_.contradictions;
    return false;
  }
  graph_.nodes[to].after.push_back({from, kind, from_end, 0});
  return true;
}

DependencyGraph DependencyBuilder::build() {
  note_waits();
  make_nodes();
  order_threads();
  hand_over();
  mark_steps();
  await_results();
  order_devices();
  link_events();
  limit_queues();
  fit_lags();
  return std::move(graph_);
}

std::optional<DependencyGraph> build_dependencies(const Trace& trace, const Analysis& analysis) {
  DependencyBuilder builder(trace, analysis);
  if (!builder.collect()) return std::nullopt;
  return builder.build();
}

}  // namespace ridge::doctor
