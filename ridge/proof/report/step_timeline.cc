#include "ridge/proof/report/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <variant>

namespace ridge {
namespace {

std::string row_of(const TraceLog& log, const TraceEvent& event, const StepWindow& window) {
  if (event.thread == 0) return fmt::format("stream {}", event.stream);
  if (event.thread == window.thread) return kStepRow;
  const auto named = log.thread_names.find(event.thread);
  return named != log.thread_names.end() ? named->second : fmt::format("thread {}", event.thread);
}

// Work on a device is named by the scope that launched it, all else by its own name.
std::string site_of(const TraceEvent& event) {
  for (const auto& [name, value] : event.args)
    if (event.thread == 0 && name == "site")
      if (const auto* const site = std::get_if<std::string>(&value)) return *site;
  return event.name;
}

// A stream's wait is not its work, and is not shown.
bool is_shown(const TraceEvent& event) {
  return event.thread != 0 || (event.stream >= 0 && event.category != "cuda_sync");
}

// Launches of each row; their events must be sorted.
std::map<std::string, std::vector<StepLaunch>> rows_of(
    const TraceLog& log, const StepWindow& window, const std::map<std::string, std::string>& ops) {
  std::map<std::string, std::vector<StepLaunch>> rows;
  std::map<std::pair<int64_t, int32_t>, int64_t> busy_until;  // by thread and stream
  for (const TraceEvent& event : log.events) {
    const int64_t start = std::max(event.start_ns, window.start_ns);
    const int64_t end = std::min(event.end_ns(), window.end_ns);
    if (!is_shown(event) || end <= start) continue;
    const std::pair track(event.thread, event.thread == 0 ? event.stream : -1);
    const auto [busy, is_first] = busy_until.try_emplace(track, window.start_ns);
    if (start < busy->second) continue;
    busy->second = end;
    const std::string site = site_of(event);
    const auto op = ops.find(site);
    const bool is_launch = op != ops.end();
    rows[row_of(log, event, window)].push_back(
        {.name = is_launch ? op->second : event.name,
         .row = {},
         .start_ms = 1e-6 * static_cast<double>(start - window.start_ns),
         .duration_ms = 1e-6 * static_cast<double>(end - start),
         .site = is_launch ? site : ""});
  }
  return rows;
}

// The duration that exactly `count` of them, or a few more of the same length, reach.
double shortest_of_longest(const std::map<std::string, std::vector<StepLaunch>>& rows,
                           size_t count) {
  std::vector<double> durations;
  for (const auto& [name, row] : rows)
    for (const StepLaunch& launch : row) durations.push_back(launch.duration_ms);
  const auto nth = durations.begin() + static_cast<std::ptrdiff_t>(count);
  std::nth_element(durations.begin(), nth, durations.end(), std::greater<>());
  return *nth;
}

// Neighbours that are no longer than `length` become one; returns how many were taken together.
int64_t merge_short(std::vector<StepLaunch>& row, double length) {
  std::vector<StepLaunch> merged;
  int64_t taken = 0;
  for (size_t i = 0; i < row.size();) {
    size_t end = i + 1;
    if (row[i].duration_ms <= length)
      while (end < row.size() && row[end].duration_ms <= length) ++end;
    if (end == i + 1) {
      merged.push_back(std::move(row[i]));
    } else {
      const StepLaunch& last = row[end - 1];
      merged.push_back({.name = fmt::format("{}{}", end - i, kShortOnes),
                        .row = {},
                        .start_ms = row[i].start_ms,
                        .duration_ms = last.start_ms + last.duration_ms - row[i].start_ms});
      taken += static_cast<int64_t>(end - i);
    }
    i = end;
  }
  row = std::move(merged);
  return taken;
}

}  // namespace

StepTimeline make_timeline(const TraceLog& log,
                           const StepWindow& window,
                           const std::map<std::string, std::string>& ops,
                           size_t most) {
  StepTimeline timeline;
  timeline.step_ms = 1e-6 * static_cast<double>(window.end_ns - window.start_ns);
  auto rows = rows_of(log, window, ops);
  std::vector<StepLaunch> own = std::move(rows[kStepRow]);
  rows.erase(kStepRow);
  while (rows.size() >= kMostRows) rows.erase(std::prev(rows.end()));
  rows.emplace("", std::move(own));  // before all others
  size_t all = 0;
  for (const auto& [name, row] : rows) all += row.size();
  if (all > most) {
    // Between any two that stay there is at most one of those that are merged.
    const size_t kept = most > rows.size() ? (most - rows.size()) / 2 : 0;
    const double length = shortest_of_longest(rows, kept);
    for (auto& [name, row] : rows) timeline.merged += merge_short(row, length);
  }
  for (auto& [name, row] : rows)
    for (StepLaunch& launch : row) {
      launch.row = name.empty() ? kStepRow : name;
      timeline.launches.push_back(std::move(launch));
    }
  return timeline;
}

}  // namespace ridge
