// Steady steps: by marks, else by the optimizer, else by what repeats, else the whole trace.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "ridge/doctor/analysis/analysis.h"
#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/analysis/kernel_period.h"

namespace ridge::doctor {
namespace {

// A step longer than this many middle ones warms up, or flushes.
constexpr double kMuchLonger = 1.5;
// A step with a smaller share of the middle one's calls was cut off by the recorder.
constexpr double kFewCalls = 0.5;

bool is_host(const Trace& trace, size_t row) { return !trace.lane_of(row).is_device(); }

Interval stretch_of(const Trace& trace, size_t row) {
  return {trace.start_ns[row], trace.end_ns(row)};
}

// From the first event of its kind to the end of the last.
template <typename Keep>
Interval span_of(const Trace& trace, Keep keep) {
  Interval span{INT64_MAX, INT64_MIN};
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!keep(row)) continue;
    span.begin = std::min(span.begin, trace.start_ns[row]);
    span.end = std::max(span.end, trace.end_ns(row));
  }
  return span.begin > span.end ? Interval{} : span;
}

Interval span_of_work(const Trace& trace) {
  const Interval device =
      span_of(trace, [&](size_t row) { return is_device_work(trace.kind[row]); });
  if (device.length() > 0) return device;
  return span_of(trace, [&](size_t row) { return is_host(trace, row); });
}

// ---- marks ----

// Ranges of one name, numbers left out, on one thread.
struct Marks {
  std::string name;
  int rank = 0;
  std::vector<Interval> windows;
  int64_t covered = 0;

  bool are_apart() const {
    for (size_t i = 1; i < windows.size(); ++i)
      if (windows[i].begin < windows[i - 1].end) return false;
    return true;
  }
  Interval span() const { return {windows.front().begin, windows.back().end}; }
};

std::vector<Marks> marks_of(const Trace& trace) {
  std::unordered_map<uint32_t, std::string> plain;
  std::map<std::pair<uint32_t, std::string>, Marks> groups;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kRange || !is_host(trace, row)) continue;
    auto [it, is_new] = plain.try_emplace(trace.name[row]);
    if (is_new) it->second = without_numbers(trace.name_text(row));
    Marks& marks = groups[{trace.lane[row], it->second}];
    marks.name = it->second;
    marks.windows.push_back(stretch_of(trace, row));
    marks.covered += trace.duration_ns[row];
  }
  std::vector<Marks> all;
  for (auto& [key, marks] : groups) {
    std::sort(marks.windows.begin(), marks.windows.end(), [](const Interval& a, const Interval& b) {
      return a.begin < b.begin;
    });
    marks.rank = step_mark_rank(marks.name);
    if (marks.are_apart()) all.push_back(std::move(marks));
  }
  return all;
}

// Named as steps are; of equal names the thread that has most of them.
const Marks* named_marks(const std::vector<Marks>& all) {
  const Marks* best = nullptr;
  for (const Marks& marks : all) {
    if (marks.rank == 0 || (marks.rank > 1 && marks.windows.size() < 2)) continue;
    if (best == nullptr || marks.rank < best->rank ||
        (marks.rank == best->rank && marks.covered > best->covered))
      best = &marks;
  }
  return best;
}

// Ranges that repeat and cover most of the work; of epochs and the batches within, the batches.
const Marks* repeated_marks(const std::vector<Marks>& all, Interval work) {
  std::vector<const Marks*> fit;
  int64_t most = 0;
  for (const Marks& marks : all) {
    if (marks.windows.size() < 3 || is_optimizer_step(marks.name) ||
        cause_of(EventKind::kRange, marks.name) != HostCause::kUnknown)
      continue;
    if (10 * marks.covered < 6 * marks.span().length() || 2 * marks.covered < work.length())
      continue;
    fit.push_back(&marks);
    most = std::max(most, marks.covered);
  }
  const Marks* best = nullptr;
  for (const Marks* marks : fit)
    if (10 * marks->covered >= 9 * most &&
        (best == nullptr || marks->windows.size() > best->windows.size()))
      best = marks;
  return best;
}

// From one update of the weights to the next. Of several optimizers the one that steps least.
std::vector<Interval> between_updates(const std::vector<Marks>& all) {
  const Marks* best = nullptr;
  for (const Marks& marks : all)
    if (is_optimizer_step(marks.name) && marks.windows.size() >= 2 &&
        (best == nullptr || marks.windows.size() < best->windows.size()))
      best = &marks;
  std::vector<Interval> windows;
  if (best == nullptr) return windows;
  for (size_t i = 1; i < best->windows.size(); ++i)
    windows.push_back({best->windows[i - 1].end, best->windows[i].end});
  return windows;
}

// ---- what repeats ----

// The lane with most rows of a kind; kNone where there are none.
uint32_t fullest_lane(const Trace& trace, EventKind kind) {
  std::vector<int64_t> rows(trace.lanes.size(), 0);
  for (size_t row = 0; row < trace.size(); ++row) rows[trace.lane[row]] += trace.kind[row] == kind;
  const auto most = std::max_element(rows.begin(), rows.end());
  if (most == rows.end() || *most == 0) return Trace::kNone;
  return static_cast<uint32_t>(most - rows.begin());
}

std::vector<Interval> repeated_work(const Trace& trace, EventKind kind) {
  const uint32_t lane = fullest_lane(trace, kind);
  std::vector<uint32_t> names;
  std::vector<int64_t> begins, gaps;
  int64_t end = INT64_MIN;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != kind || trace.lane[row] != lane) continue;
    if (kind == EventKind::kOperator && trace.end_ns(row) <= end) continue;  // Within another.
    names.push_back(trace.name[row]);
    begins.push_back(trace.start_ns[row]);
    gaps.push_back(names.size() == 1 ? 0 : std::max<int64_t>(0, trace.start_ns[row] - end));
    end = std::max(end, trace.end_ns(row));
  }
  std::vector<Interval> windows;
  const std::vector<int64_t> at = repetitions(names, gaps, period_of(names));
  for (size_t i = 1; i < at.size(); ++i)
    windows.push_back({begins[static_cast<size_t>(at[i - 1])], begins[static_cast<size_t>(at[i])]});
  return windows;
}

// ---- warm-up and ends ----

int64_t middle(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

bool is_much_longer(int64_t length, int64_t usual) {
  return static_cast<double>(length) > kMuchLonger * static_cast<double>(usual);
}

// Contents of each window: the calls and operators that begin in it, and the time that loads code.
struct Contents {
  std::vector<int64_t> events, loading_ns;
};

Contents contents_of(const Trace& trace, const std::vector<Interval>& windows) {
  Contents contents{std::vector<int64_t>(windows.size(), 0),
                    std::vector<int64_t>(windows.size(), 0)};
  const std::vector<HostCause> causes = causes_of(trace);
  for (size_t row = 0; row < trace.size(); ++row) {
    const EventKind kind = trace.kind[row];
    if (kind != EventKind::kRuntime && kind != EventKind::kOperator &&
        causes[row] != HostCause::kModule)
      continue;
    const auto after = std::upper_bound(
        windows.begin(), windows.end(), trace.start_ns[row], [](int64_t t, const Interval& window) {
          return t < window.begin;
        });
    if (after == windows.begin() || trace.start_ns[row] >= (after - 1)->end) continue;
    const auto at = static_cast<size_t>(after - 1 - windows.begin());
    ++contents.events[at];
    if (causes[row] == HostCause::kModule) contents.loading_ns[at] += trace.duration_ns[row];
  }
  return contents;
}

template <typename T>
std::vector<T> after_first(const std::vector<T>& values, size_t first) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first), values.end()};
}

// Whether the recorder stopped in the last of them: much less is in it than in the others.
bool ends_cut(const Contents& contents, const std::vector<int64_t>& lengths) {
  if (lengths.size() < 2) return false;
  std::vector<int64_t> others(contents.events.begin(), contents.events.end() - 1);
  return static_cast<double>(contents.events.back()) <
         kFewCalls * static_cast<double>(middle(std::move(others)));
}

// Leading steps are warm-up while they are much longer than the rest, or load code for a twentieth
// of their time and the rest does not. At most half: more than that is how the program runs.
size_t warm_up_of(const Contents& contents, const std::vector<int64_t>& lengths) {
  size_t first = 0;
  for (; 2 * (first + 1) <= lengths.size() && first + 1 < lengths.size(); ++first) {
    const int64_t rest = middle(after_first(lengths, first + 1));
    const bool loads = 20 * contents.loading_ns[first] > lengths[first] &&
                       20 * middle(after_first(contents.loading_ns, first + 1)) <= rest;
    if (is_much_longer(lengths[first], rest) || loads) continue;
    break;
  }
  return first;
}

void leave_out_ends(const Trace& trace, Steps& steps) {
  Contents contents = contents_of(trace, steps.windows);
  std::vector<int64_t> lengths;
  for (const Interval& window : steps.windows) lengths.push_back(window.length());
  if (ends_cut(contents, lengths)) {
    lengths.pop_back();
    contents.events.pop_back();
    contents.loading_ns.pop_back();
  }
  const size_t first = warm_up_of(contents, lengths);
  // The recorder's flush makes the last one longer.
  if (lengths.size() - first >= 2 &&
      is_much_longer(lengths.back(), middle(after_first(lengths, first))))
    lengths.pop_back();
  steps.left_out = static_cast<int64_t>(steps.windows.size() - (lengths.size() - first));
  steps.windows.resize(lengths.size());
  steps.windows.erase(steps.windows.begin(),
                      steps.windows.begin() + static_cast<std::ptrdiff_t>(first));
}

Steps candidates(const Trace& trace) {
  const Interval work = span_of_work(trace);
  const std::vector<Marks> marks = marks_of(trace);
  if (const Marks* named = named_marks(marks))
    return {.windows = named->windows, .source = named->rank == 1 ? "ProfilerStep" : named->name};
  if (const Marks* repeated = repeated_marks(marks, work))
    return {.windows = repeated->windows, .source = repeated->name};
  if (auto updates = between_updates(marks); !updates.empty())
    return {.windows = std::move(updates), .source = "optimizer"};
  const bool has_kernels = trace.has_device_work();
  auto repeats = repeated_work(trace, has_kernels ? EventKind::kKernel : EventKind::kOperator);
  if (repeats.size() >= 2)
    return {.windows = std::move(repeats),
            .source = has_kernels ? "kernels repeat" : "operators repeat"};
  Steps whole{.windows = {}, .source = "whole trace"};
  if (work.length() > 0) whole.windows.push_back(work);
  return whole;
}

}  // namespace

Steps find_steps(const Trace& trace) {
  Steps steps = candidates(trace);
  std::erase_if(steps.windows, [](const Interval& window) { return window.length() == 0; });
  if (steps.are_marked() && !steps.windows.empty()) leave_out_ends(trace, steps);
  return steps;
}

}  // namespace ridge::doctor
