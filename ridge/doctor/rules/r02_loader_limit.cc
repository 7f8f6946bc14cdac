// R02: the loader cannot go faster with more workers: they wait for locks, files or a processor.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/loader_spans.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.05, .warning = 0.05, .high = 0.20};
constexpr double kMuchWaiting = 0.30;

enum What : size_t { kLocks, kFiles, kProcessor, kKinds };

struct Limit {
  std::string_view what, fix;
};
constexpr Limit kLimits[kKinds] = {
    {"locks",
     "find the lock that all workers take (an interpreter's, a shared file or cache) and give each "
     "worker its own, or use processes; more workers only wait longer"},
    {"files",
     "read fewer and larger pieces: pack samples into few files, map them, keep them in memory or "
     "on a faster disk; more workers only queue at the same disk"},
    {"a processor",
     "make a sample cheaper: store it decoded or smaller, resize offline, or use fewer threads for "
     "other work; there is no processor left for more workers"}};

constexpr std::string_view kLockWords[] = {"futex", "mutex", "lock", "semaphore", "gil"};
constexpr std::string_view kProcessorWords[] = {
    "runnable", "run queue", "sched", "preempt", "throttl"};
constexpr std::string_view kFileWords[] = {
    "read", "open", "stat", "seek", "sync", "disk", "fault", "i/o"};

std::optional<What> kind_of(std::string_view wait) {
  if (holds_any(wait, kLockWords)) return kLocks;
  if (holds_any(wait, kProcessorWords)) return kProcessor;
  if (holds_any(wait, kFileWords)) return kFiles;
  return std::nullopt;
}

struct Waiting {
  int64_t making_ns = 0;  // over all threads of the loader, within steps
  std::array<int64_t, kKinds> waiting_ns{};
  std::array<size_t, kKinds> counts{}, longest{};
};

// Adds up the waits of threads while they make samples; waiting for work lies outside of that.
Waiting waiting_of(const Trace& trace, const Analysis& analysis) {
  std::vector<std::vector<Interval>> making(trace.lanes.size());
  ByName makes(trace, is_producer_span);
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kRange || trace.kind[row] == EventKind::kOperator)
      if (makes(row) && !trace.lane_of(row).is_device())
        making[trace.lane[row]].push_back({trace.start_ns[row], trace.end_ns(row)});
  const Intervals steps = union_of({analysis.steps.windows.begin(), analysis.steps.windows.end()});
  std::vector<Intervals> by_lane;
  Waiting waiting;
  for (std::vector<Interval>& stretches : making) {
    by_lane.push_back(intersection_of(union_of(std::move(stretches)), steps));
    waiting.making_ns += total_length(by_lane.back());
  }
  ByName waits_for(trace, kind_of);
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kHostWait) continue;
    const std::optional<What> kind = waits_for(row);
    if (!kind) continue;
    const Interval wait{trace.start_ns[row], trace.end_ns(row)};
    const int64_t inside = total_length(clipped(by_lane[trace.lane[row]], wait));
    if (inside == 0) continue;
    waiting.waiting_ns[*kind] += inside;
    if (waiting.counts[*kind]++ == 0 ||
        trace.duration_ns[row] > trace.duration_ns[waiting.longest[*kind]])
      waiting.longest[*kind] = row;
  }
  return waiting;
}

}  // namespace

void r02_loader_limit(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const auto not_fired = [&](std::string reason) {
    output.not_fired.push_back({"R02", std::move(reason)});
  };
  const LoaderTime loader = loader_time(trace, analysis);
  const double share = share_of(loader.starved_ms, analysis);
  if (share < kLadder.warning) return not_fired("the loader keeps up");
  const Waiting waiting = waiting_of(trace, analysis);
  if (waiting.making_ns == 0)
    return not_fired("the trace does not show what the loader's workers do");
  const auto most = std::max_element(waiting.waiting_ns.begin(), waiting.waiting_ns.end());
  const double waited = static_cast<double>(*most) / static_cast<double>(waiting.making_ns);
  if (waited < kMuchWaiting)
    return not_fired(
        fmt::format("the loader's workers work: {:.0f} % of their time is waiting", 100 * waited));
  const auto kind = static_cast<size_t>(most - waiting.waiting_ns.begin());
  Finding finding{.rule = "R02",
                  .title = fmt::format("the loader's workers wait for {}: more of them do not help",
                                       kLimits[kind].what)};
  finding.severity = severity_of(share, kLadder);
  finding.confidence = 0.8;
  charge(finding, analysis, loader.starved_ms, std::clamp(waited, 0.0, 1.0) / 2);
  finding.evidence.push_back(
      {.rows = {waiting.longest[kind]},
       .text = fmt::format("{} waits for {} take {:.0f} % of the time in which samples are made",
                           waiting.counts[kind],
                           kLimits[kind].what,
                           100 * waited)});
  finding.at = loader.starved;
  report(output, trace, std::move(finding), {.fix = kLimits[kind].fix});
}

}  // namespace ridge::doctor
