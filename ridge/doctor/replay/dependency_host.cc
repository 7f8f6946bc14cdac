// What the host waits for: the call before, another thread, or a device.
#include <algorithm>

#include "ridge/doctor/replay/dependency_builder.h"

namespace ridge::doctor {

namespace {

// Shorter silences of a thread are not told from the locks of an interpreter.
constexpr int64_t kHandOverNs = 100'000;
// Recorders round, and the clocks of host and device differ a little.
constexpr int64_t kClockNs = 1'000;
constexpr int64_t kLongWaitNs = 50'000;

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view beginning) {
    return text.starts_with(beginning);
  });
}

bool waits_for_device(std::string_view call) {
  return starts_with_any(call, {"DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"});
}

bool frees_at_once(std::string_view call) {
  return call == "Free" || call == "MemFree" || call.starts_with("MemFree_v2");
}

bool may_wait_for_work(std::string_view call) {
  return waits_for_device(call) || frees_at_once(call) || call.starts_with("Memcpy") ||
         starts_with_any(call, {"StreamSynchronize", "EventSynchronize"});
}

}  // namespace

void DependencyBuilder::note_waits() {
  for (Call& call : calls_)
    call.may_wait =
        call.end > call.start && may_wait_for_work(without_vendor(trace_.name_text(call.row)));
  // A queue of launches is 1024 long, or what it was seen to hold where that is near.
  for (auto& [lane, stream] : streams_) {
    std::vector<size_t> issued;
    for (const size_t work : stream)
      if (work_[work].call != kNoCall) issued.push_back(work);
    size_t depth = 0;
    for (size_t i = 0, begun = 0; i < issued.size(); ++i) {
      const int64_t end = calls_[work_[issued[i]].call].end;
      while (begun < i && work_[issued[begun]].start <= end) ++begun;
      depth = std::max(depth, i + 1 - begun);
    }
    if (depth < 900) depth = 1024;
    for (size_t i = depth; i < issued.size(); ++i) {
      Call& call = calls_[work_[issued[i]].call];
      if (call.end <= call.start) continue;
      call.may_wait = true;
      queue_slot_[work_[issued[i]].call] = static_cast<int64_t>(issued[i - depth]);
    }
  }
}

void DependencyBuilder::order_threads() {
  for (const auto& [lane, thread] : threads_) {
    uint32_t before = 0;  // The origin.
    for (const size_t index : thread) {
      const Call& call = calls_[index];
      // Of calls that overlap, which only a broken recording has, starts are in order.
      const int64_t end = graph_.nodes[before].start_ns + graph_.nodes[before].duration_ns;
      const bool from_end = before == 0 || end <= call.start;
      if (add_edge(before, call.node, EdgeKind::kThread, from_end)) {
        Edge& edge = graph_.nodes[call.node].after.back();
        edge.lag_ns = std::max<int64_t>(0, call.start - measured(edge));
      }
      before = call.last;
      if (call.may_wait) add_edge(call.node, call.last, EdgeKind::kThread);
    }
  }
}

void DependencyBuilder::hand_over() {
  for (const auto& [lane, thread] : threads_)
    for (size_t next = 1; next < thread.size(); ++next)
      if (calls_[thread[next]].start - calls_[thread[next - 1]].end >= kHandOverNs)
        hand_over_in(lane, next);
}

// A thread is silent while another works that was silent before and is again after it: such are
// the forward and the backward thread of PyTorch. The one goes on when the other has finished.
void DependencyBuilder::hand_over_in(uint32_t lane, size_t next) {
  const auto& own = threads_.at(lane);
  const Call &stops = calls_[own[next - 1]], &resumes = calls_[own[next]];
  for (const auto& [other, thread] : threads_) {
    if (other == lane) continue;
    const auto first = std::partition_point(
        thread.begin(), thread.end(), [&](size_t call) { return calls_[call].start < stops.end; });
    const auto after = std::partition_point(
        first, thread.end(), [&](size_t call) { return calls_[call].start < resumes.start; });
    if (first == after) continue;
    const Call &begins = calls_[*first], &ends = calls_[*(after - 1)];
    if (first != thread.begin() && calls_[*(first - 1)].end > stops.end) continue;
    if (ends.end > resumes.start) continue;
    if (ends.end - begins.start < (resumes.start - stops.end) / 2) continue;
    const auto link = [&](const Call& from, const Call& to) {
      for (Edge& edge : graph_.nodes[to.node].after) edge.lag_ns = 0;
      if (add_edge(from.last, to.node, EdgeKind::kHandOver))
        graph_.nodes[to.node].after.back().lag_ns = std::max<int64_t>(0, to.start - from.end);
    };
    link(stops, begins);
    link(ends, resumes);
    return;
  }
}

// A step ends where the program says so: some time after the call that ended last before.
void DependencyBuilder::mark_steps() {
  for (uint32_t number = 0; number < graph_.nodes.size(); ++number) {
    Node& mark = graph_.nodes[number];
    if (mark.kind != Node::Kind::kMark) continue;
    const Call* last = nullptr;
    for (const auto& [lane, thread] : threads_) {
      const auto after = std::partition_point(thread.begin(), thread.end(), [&](size_t call) {
        return calls_[call].end <= mark.start_ns;
      });
      if (after == thread.begin()) continue;
      const Call& call = calls_[*(after - 1)];
      if (last == nullptr || call.end > last->end) last = &call;
    }
    if (add_edge(last == nullptr ? 0 : last->last, number, EdgeKind::kThread)) {
      Edge& edge = graph_.nodes[number].after.back();
      edge.lag_ns = std::max<int64_t>(0, mark.start_ns - measured(edge));
    }
  }
}

void DependencyBuilder::await_stream(const Call& call, uint32_t lane, int64_t before) {
  const size_t work = last_given(lane, before);
  if (work == kNoCall || work_[work].end > call.end + kClockNs) return;
  add_edge(work_[work].node, call.last, EdgeKind::kAwait);
}

void DependencyBuilder::await(Call& call) {
  const std::string_view name = without_vendor(trace_.name_text(call.row));
  if (waits_for_device(name) || frees_at_once(name)) {
    for (const auto& [lane, stream] : streams_) await_stream(call, lane, call.start);
  } else if (name.starts_with("StreamSynchronize")) {
    uint32_t lane = told_stream(call);
    if (lane == Trace::kNone) lane = stream_before(call.lane, position_of(call));
    if (lane != Trace::kNone) await_stream(call, lane, call.start);
  } else if (name.starts_with("EventSynchronize")) {
    const Call* record = record_for(call, position_of(call), Trace::kNone);
    if (record == nullptr) return;
    const uint32_t lane = recorded_stream(call, *record);
    if (lane != Trace::kNone) await_stream(call, lane, record->start);
  } else if (const auto own = work_of_call_.find(static_cast<size_t>(&call - &calls_[0]));
             own != work_of_call_.end()) {
    // Whether a copy holds the host is seen by its times: pinned memory does not.
    const Work& copy = work_[own->second.back()];
    if (trace_.kind[copy.row] == EventKind::kCopy && copy.end <= call.end)
      add_edge(copy.node, call.last, EdgeKind::kAwait);
  }
}

// Who waited long, for something that was asked for before the first step or that the recorder does
// not tell, and returned right after some work had ended, waited for that.
void DependencyBuilder::guess_awaited(const Call& call) {
  if (call.end - call.start < kLongWaitNs) return;
  if (!without_vendor(trace_.name_text(call.row)).ends_with("Synchronize")) return;
  const auto& after = graph_.nodes[call.last].after;
  if (std::any_of(after.begin(), after.end(), [](const Edge& edge) {
        return edge.kind == EdgeKind::kAwait;
      }))
    return;
  const auto ended = std::partition_point(work_by_end_.begin(), work_by_end_.end(), [&](size_t at) {
    return work_[at].end <= call.end;
  });
  if (ended == work_by_end_.begin()) return;
  const Work& work = work_[*(ended - 1)];
  if (work.end > call.start && call.end - work.end <= kLongWaitNs)
    add_edge(work.node, call.last, EdgeKind::kAwait);
}

void DependencyBuilder::await_results() {
  for (size_t work = 0; work < work_.size(); ++work) work_by_end_.push_back(work);
  std::sort(work_by_end_.begin(), work_by_end_.end(), [&](size_t a, size_t b) {
    return std::pair(work_[a].end, a) < std::pair(work_[b].end, b);
  });
  for (Call& call : calls_) {
    if (!call.may_wait) continue;
    await(call);
    guess_awaited(call);
  }
}

}  // namespace ridge::doctor
