#include "ridge/doctor/replay/timeline.h"

#include <algorithm>

namespace ridge::doctor {

namespace {

constexpr size_t kMostWindows = 12;

bool may_wait_for_work(std::string_view call) {
  for (const std::string_view beginning : {"Memcpy", "StreamSynchronize", "EventSynchronize"})
    if (call.starts_with(beginning)) return true;
  return waits_for_device(call);
}

}  // namespace

std::string_view without_vendor(std::string_view call) {
  for (const std::string_view vendor : {"cuda", "hip", "cu"})
    if (call.starts_with(vendor)) return call.substr(vendor.size());
  return call;
}

bool waits_for_device(std::string_view call) {
  for (const std::string_view beginning :
       {"DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize", "MemFree_v2"})
    if (call.starts_with(beginning)) return true;
  return call == "Free" || call == "MemFree";
}

Timeline::Timeline(const Trace& traced, const Analysis& analysis) : trace(traced) {
  choose_windows(analysis.steps.windows);
  if (end <= begin) return;
  collect_calls();
  collect_work(analysis.launched_by);
  note_waits();
}

void Timeline::choose_windows(const std::vector<Interval>& all) {
  // The longest run of steps with next to nothing between them: what lies between is no step.
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
  windows.assign(from, from + static_cast<ptrdiff_t>(count));
  if (windows.empty()) return;
  begin = windows.front().begin;
  end = windows.back().end;
}

void Timeline::collect_calls() {
  for (size_t row = 0; row < trace.size(); ++row) {
    const int64_t start = trace.start_ns[row];
    if (start >= end) break;
    if (trace.kind[row] != EventKind::kRuntime || start < begin) continue;
    auto& thread = threads[trace.lane[row]];
    // A call of the driver within one of the runtime is the same call.
    if (thread.empty() || trace.end_ns(row) > calls[thread.back()].end ||
        start >= calls[thread.back()].end) {
      thread.push_back(calls.size());
      calls.push_back(
          {row, trace.lane[row], start, trace.end_ns(row), without_vendor(trace.name_text(row))});
    }
    call_of_row[row] = thread.back();
  }
}

void Timeline::collect_work(const std::vector<size_t>& launched_by) {
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!is_device_work(trace.kind[row]) || trace.end_ns(row) <= begin) continue;
    const size_t caller = row < launched_by.size() ? launched_by[row] : SIZE_MAX;
    const bool is_known = caller < trace.size();
    const auto call = is_known ? call_of_row.find(caller) : call_of_row.end();
    if (call == call_of_row.end() && trace.start_ns[row] >= end) continue;
    if (call == call_of_row.end() && is_known && trace.start_ns[caller] >= end) continue;
    const int64_t start = std::max(begin, trace.start_ns[row]);
    Work each{row, kNone, start, start, trace.end_ns(row)};
    if (call != call_of_row.end()) {
      each.call = call->second;
      work_of_call[each.call].push_back(work.size());
    }
    if (is_known) each.issued = trace.start_ns[caller];
    streams[trace.lane[row]].push_back(work.size());
    work.push_back(each);
  }
}

void Timeline::note_waits() {
  for (Call& call : calls) call.may_wait = call.end > call.start && may_wait_for_work(call.name);
  for (const auto& [lane, stream] : streams) note_full_queue(stream);
}

// A queue of launches is 1024 long, or the length that it was seen to have where that is near.
void Timeline::note_full_queue(const std::vector<size_t>& stream) {
  std::vector<size_t> issued;
  for (const size_t each : stream)
    if (work[each].call != kNone) issued.push_back(each);
  size_t depth = 0;
  for (size_t i = 0, begun = 0; i < issued.size(); ++i) {
    const int64_t returned = calls[work[issued[i]].call].end;
    while (begun < i && work[issued[begun]].start <= returned) ++begun;
    depth = std::max(depth, i + 1 - begun);
  }
  if (depth < 900) depth = 1024;
  for (size_t i = depth; i < issued.size(); ++i) {
    Call& call = calls[work[issued[i]].call];
    if (call.end <= call.start) continue;
    call.may_wait = true;
    call.queue_slot = issued[i - depth];
  }
}

size_t Timeline::last_given(uint32_t stream, int64_t before) const {
  const auto found = streams.find(stream);
  if (found == streams.end()) return kNone;
  const auto& given = found->second;
  const auto after = std::partition_point(
      given.begin(), given.end(), [&](size_t each) { return work[each].issued < before; });
  return after == given.begin() ? kNone : *(after - 1);
}

size_t Timeline::first_given(uint32_t stream, int64_t from) const {
  const auto found = streams.find(stream);
  if (found == streams.end()) return kNone;
  const auto& given = found->second;
  const auto at = std::partition_point(
      given.begin(), given.end(), [&](size_t each) { return work[each].issued < from; });
  return at == given.end() ? kNone : *at;
}

size_t Timeline::calls_before(uint32_t thread, int64_t time) const {
  const auto& own = threads.at(thread);
  const auto after = std::partition_point(
      own.begin(), own.end(), [&](size_t call) { return calls[call].start < time; });
  return static_cast<size_t>(after - own.begin());
}

uint32_t Timeline::launched_to(size_t call) const {
  const auto own = work_of_call.find(call);
  return own == work_of_call.end() ? Trace::kNone : trace.lane[work[own->second.front()].row];
}

uint32_t Timeline::stream_before(uint32_t thread, size_t position) const {
  const auto& own = threads.at(thread);
  uint32_t stream = Trace::kNone;
  while (stream == Trace::kNone && position-- > 0) stream = launched_to(own[position]);
  return stream;
}

uint32_t Timeline::stream_after(uint32_t thread, size_t position) const {
  const auto& own = threads.at(thread);
  uint32_t stream = Trace::kNone;
  while (stream == Trace::kNone && ++position < own.size()) stream = launched_to(own[position]);
  return stream;
}

}  // namespace ridge::doctor
