// R29: now and then a step takes much longer than the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.03, .warning = 0.05, .high = 0.20};
constexpr size_t kFewSteps = 8, kFewStalls = 2;
constexpr double kUsual = 0.02;                             // of what a slow step takes more
constexpr double kDeviations = 6, kLeastDeviation = 0.005;  // of the median
constexpr double kMostStalls = 1.0 / 3;                     // of the steps: else they are no stalls

struct Stalls {
  std::vector<size_t> steps;  // that are slow
  double median_ms = 0, mean_ms = 0;
  int64_t period = 0;  // in steps; 0: none
};

int64_t period_of(const std::vector<size_t>& steps) {
  std::vector<int64_t> apart;
  for (size_t i = 1; i < steps.size(); ++i)
    apart.push_back(static_cast<int64_t>(steps[i] - steps[i - 1]));
  if (apart.size() < 2) return 0;
  const auto [least, most] = std::minmax_element(apart.begin(), apart.end());
  // Slow steps that follow each other are one time of trouble, and no period.
  return *least > 1 && *most - *least <= 1 ? (*least + *most) / 2 : 0;
}

Stalls stalls_of(const std::vector<Interval>& windows) {
  std::vector<double> times, distances;
  Stalls stalls;
  for (const Interval& window : windows) {
    times.push_back(static_cast<double>(window.length()) / 1e6);
    stalls.mean_ms += times.back() / static_cast<double>(windows.size());
  }
  stalls.median_ms = middle_of(times);
  for (double time : times) distances.push_back(std::fabs(time - stalls.median_ms));
  const double deviation = std::max(middle_of(distances), kLeastDeviation * stalls.median_ms);
  for (size_t i = 0; i < times.size(); ++i)
    if (times[i] > stalls.median_ms + kDeviations * deviation) stalls.steps.push_back(i);
  stalls.period = period_of(stalls.steps);
  return stalls;
}

// The name of an event that fills the slow steps and not the others.
struct Blame {
  uint32_t name = 0;
  double excess_ms = 0;   // a slow step, over what it takes in the others
  bool is_usual = false;  // the others do it too
  std::vector<Interval> at;
  std::vector<size_t> rows;
};

bool can_be_blamed(const Trace& trace, size_t row) {
  switch (trace.kind[row]) {
    case EventKind::kOperator:
    case EventKind::kPython:
    case EventKind::kRange:
    case EventKind::kRuntime:
    case EventKind::kHostWait:
    case EventKind::kOther:
      return !trace.lane_of(row).is_device();
    default:
      return false;
  }
}

struct Spent {
  double slow_ms = 0, other_ms = 0;
  double other_count = 0;
  std::vector<Interval> at;
  std::vector<size_t> rows;
};

std::map<uint32_t, Spent> spent_by_name(const Trace& trace,
                                        const std::vector<Interval>& windows,
                                        const std::vector<bool>& is_slow) {
  std::map<uint32_t, Spent> spent;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!can_be_blamed(trace, row)) continue;
    auto window = std::upper_bound(
        windows.begin(), windows.end(), trace.start_ns[row], [](int64_t at, const Interval& each) {
          return at < each.end;
        });
    for (; window != windows.end() && window->begin < trace.end_ns(row); ++window) {
      const Interval inside{std::max(window->begin, trace.start_ns[row]),
                            std::min(window->end, trace.end_ns(row))};
      // A mark of a step, or what runs through several, says nothing.
      if (inside.length() >= window->length()) continue;
      Spent& sum = spent[trace.name[row]];
      const double ms = static_cast<double>(inside.length()) / 1e6;
      if (is_slow[static_cast<size_t>(window - windows.begin())]) {
        sum.slow_ms += ms;
        sum.at.push_back(inside);
        if (sum.rows.size() < 3) sum.rows.push_back(row);
      } else {
        sum.other_ms += ms;
        ++sum.other_count;
      }
    }
  }
  return spent;
}

// The one that explains most; of what nests the inner one that explains nearly as much.
std::optional<Blame> blame_of(const Trace& trace, const Steps& steps, const Stalls& stalls) {
  const std::vector<Interval>& windows = steps.windows;
  std::vector<bool> is_slow(windows.size());
  for (size_t step : stalls.steps) is_slow[step] = true;
  const auto slow = static_cast<double>(stalls.steps.size());
  const double others = static_cast<double>(windows.size()) - slow;
  double most = 0;
  std::map<uint32_t, Spent> spent = spent_by_name(trace, windows, is_slow);
  const auto excess = [&](const Spent& sum) { return sum.slow_ms / slow - sum.other_ms / others; };
  for (const auto& [name, sum] : spent) most = std::max(most, excess(sum));
  const double stall_ms =
      (stalls.mean_ms - stalls.median_ms) * static_cast<double>(windows.size()) / slow;
  if (most < 0.3 * stall_ms) return std::nullopt;
  auto best = spent.end();
  for (auto each = spent.begin(); each != spent.end(); ++each)
    if (excess(each->second) >= 0.9 * most &&
        (best == spent.end() || each->second.slow_ms < best->second.slow_ms))
      best = each;
  return Blame{.name = best->first,
               .excess_ms = excess(best->second),
               .is_usual = best->second.other_count > kUsual * others,
               .at = std::move(best->second.at),
               .rows = std::move(best->second.rows)};
}

std::string fix_of(std::string_view name) {
  for (const char* word : {"checkpoint", "save", "fsync", "write", "fwrite"})
    if (holds(name, word))
      return "write checkpoints from a thread of their own, from a copy of the state, or less "
             "often";
  for (const char* word : {"gc", "garbage", "collect"})
    if (holds(name, word))
      return "freeze the interpreter's garbage collector after the first steps (gc.freeze(), "
             "gc.disable()) and collect between epochs";
  for (const char* word : {"eval", "valid"})
    if (holds(name, word)) return "evaluate less often, on fewer samples, or on another device";
  for (const char* word : {"log", "metric", "summary", "print", "telling"})
    if (holds(name, word)) return "log less often, and from a thread of its own";
  for (const char* word : {"load", "batch", "read"})
    if (holds(name, word))
      return "let the loader run further ahead, so that a slow sample does not stop a step";
  return "move what the slow steps do to a thread of its own, or do it less often";
}

std::string how_often(const Stalls& stalls, size_t steps) {
  if (stalls.period > 0) return fmt::format("each {} steps", stalls.period);
  return fmt::format("{} of {} steps", stalls.steps.size(), steps);
}

// Marks alone show neither what a step does nor what else the machine does.
bool shows_work(const Trace& trace) {
  return std::any_of(trace.kind.begin(), trace.kind.end(), [](EventKind kind) {
    return kind == EventKind::kOperator || kind == EventKind::kPython ||
           kind == EventKind::kRuntime || kind == EventKind::kKernel;
  });
}

Finding finding_of(const Trace& trace, const Analysis& analysis, const Stalls& stalls) {
  const std::vector<Interval>& windows = analysis.steps.windows;
  const std::string often = how_often(stalls, windows.size());
  Finding finding{.rule = "R29", .title = fmt::format("a step stalls: {}", often)};
  charge(finding, analysis, stalls.mean_ms - stalls.median_ms);
  finding.severity = severity_of(finding.share, kLadder);
  double slow_ms = 0;
  for (size_t step : stalls.steps)
    slow_ms += static_cast<double>(windows[step].length()) / 1e6 /
               static_cast<double>(stalls.steps.size());
  finding.evidence.push_back(
      {.text = fmt::format("{} take {:.2f} ms in the mean, the median step "
                           "{:.2f} ms",
                           stalls.period > 0 ? fmt::format("slow steps ({})", often) : often,
                           slow_ms,
                           stalls.median_ms)});
  if (const std::optional<Blame> blame = blame_of(trace, analysis.steps, stalls)) {
    const std::string& name = trace.names[blame->name];
    finding.evidence.push_back(
        {.rows = blame->rows,
         .text = fmt::format("'{}' takes {:.2f} ms more in a slow step", name, blame->excess_ms)});
    finding.at = union_of(blame->at);
    finding.confidence = blame->is_usual ? 0.5 : 0.8;
    finding.fix = blame->is_usual
                      ? "the same work takes longer now and then: look for other programs, memory "
                        "that is swapped, and clocks that fall, or pin threads to processors"
                      : fix_of(name);
  } else {
    // Nothing is known of the longer half of a slow step: all of it is in question.
    std::vector<Interval> slow;
    for (size_t step : stalls.steps) slow.push_back(windows[step]);
    finding.at = union_of(std::move(slow));
    finding.confidence = 0.5;
    if (stalls.period == 0 && !shows_work(trace)) finding.severity = Severity::kInfo;
    finding.fix =
        "nothing in the trace explains the slow steps: record host threads and their "
        "waits too, or look for other programs that run then";
  }
  finding.command = proof_of(trace);
  return finding;
}

}  // namespace

void r29_periodic_stalls(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const auto not_fired = [&](std::string reason) {
    output.not_fired.push_back({"R29", std::move(reason)});
  };
  const size_t count = analysis.steps.windows.size();
  if (!analysis.steps.are_marked() || count < kFewSteps)
    return not_fired(fmt::format("{} steady steps are too few to tell stalls", count));
  const Stalls stalls = stalls_of(analysis.steps.windows);
  const double share = (stalls.mean_ms - stalls.median_ms) / std::max(stalls.mean_ms, 1e-9);
  if (stalls.steps.size() < kFewStalls)
    return not_fired(stalls.steps.empty() ? "all steps take about as long"
                                          : "one step alone is slow: too few to call it periodic");
  if (static_cast<double>(stalls.steps.size()) > kMostStalls * static_cast<double>(count))
    return not_fired("so many steps are slow that steps differ by what they do");
  if (share < kLadder.info)
    return not_fired(fmt::format("slow steps cost {:.1f} % of the time", 100 * share));
  output.findings.push_back(finding_of(trace, analysis, stalls));
}

}  // namespace ridge::doctor
