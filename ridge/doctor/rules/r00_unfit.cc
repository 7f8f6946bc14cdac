// R00: the trace is not fit for a verdict. It lowers the confidence of all others, and blocks none.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ridge/doctor/findings/doubts.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr size_t kFewSteps = 5;
constexpr double kMuchOverhead = 0.10, kMostOverhead = 1.0;
constexpr double kMuchUnknown = 0.20, kMostReplayError = 0.05;

// Time of the recorder itself within the steady steps, as a share of them.
double overhead_share(const Trace& trace, const Steps& steps) {
  std::vector<Interval> overhead, windows(steps.windows.begin(), steps.windows.end());
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kOverhead)
      overhead.push_back({trace.start_ns[row], trace.end_ns(row)});
  const Intervals within = union_of(windows);
  const int64_t whole = total_length(within);
  if (whole == 0) return 0;
  return static_cast<double>(total_length(intersection_of(union_of(overhead), within))) /
         static_cast<double>(whole);
}

// Launches of captured graphs that no device work of the trace belongs to.
int64_t closed_graphs(const Trace& trace) {
  std::unordered_set<int64_t> launched;
  for (size_t row = 0; row < trace.size(); ++row)
    if (is_device_work(trace.kind[row])) launched.insert(trace.correlation[row]);
  int64_t count = 0;
  for (size_t row = 0; row < trace.size(); ++row)
    count += trace.kind[row] == EventKind::kRuntime &&
             trace.name_text(row).find("GraphLaunch") != std::string_view::npos &&
             !launched.contains(trace.correlation[row]);
  return count;
}

bool is_launch(std::string_view name) {
  return name.find("LaunchKernel") != name.npos || name.find("launchKernel") != name.npos;
}

// Launches, though nothing on any device was recorded: profilers without rights do that silently.
int64_t unseen_launches(const Trace& trace) {
  if (trace.has_device_work()) return 0;
  int64_t count = 0;
  for (size_t row = 0; row < trace.size(); ++row)
    count += trace.kind[row] == EventKind::kRuntime && is_launch(trace.name_text(row));
  return count;
}

void doubt_recording(const Trace& trace, std::vector<Doubt>& doubts) {
  if (const int64_t launches = unseen_launches(trace); launches > 0)
    doubts.push_back(
        {fmt::format("{} kernels were launched, and no device work was recorded", launches),
         0.3,
         true,
         "record with rights to the device's counters and with no other profiler "
         "beside it"});
  if (trace.dropped > 0)
    doubts.push_back({fmt::format("the recorder lost {} events", trace.dropped),
                      0.6,
                      true,
                      "record fewer steps, or give the recorder larger buffers"});
  if (trace.is_truncated)
    doubts.push_back({"the file ends early", 0.6, true, "let the recorder finish its file"});
  if (const int64_t closed = closed_graphs(trace); closed > 0)
    doubts.push_back({fmt::format("{} launches of captured graphs show no kernels", closed),
                      0.6,
                      true,
                      "record the kernels within graphs (nsys: --cuda-graph-trace=node)"});
  int64_t warnings = 0;
  for (const Warning& warning : trace.warnings) warnings += warning.count;
  if (warnings > 0)
    doubts.push_back({fmt::format("{} warnings while it was read", warnings),
                      0.9,
                      false,
                      "record it again with the newest version of the recorder"});
}

void doubt_steps(const Trace& trace, const Steps& steps, std::vector<Doubt>& doubts) {
  if (steps.windows.empty()) {
    doubts.push_back({"no step was found in it", 0.1, true, "record at least 10 steps"});
    return;
  }
  if (!steps.are_marked())
    doubts.push_back(
        {"no steps are marked, and nothing repeats: the whole trace is taken as one",
         0.5,
         true,
         "record at least 10 steps, and mark them (profiler.step(), or a range each)"});
  else if (steps.windows.size() < kFewSteps)
    doubts.push_back(
        {fmt::format("steady steps: {}, fewer than {}", steps.windows.size(), kFewSteps),
         0.8,
         false,
         "record at least 10 steps"});
  if (const double share = overhead_share(trace, steps); share > kMuchOverhead)
    doubts.push_back({fmt::format("the recorder itself takes {:.0f} % of a step", 100 * share),
                      0.6,
                      true,
                      "record less: no stacks, no shapes, no memory"});
}

// Doubts findings about operators of a watched program: they describe operators that the profiler
// slowed.
void doubt_profiler(const Analysis& analysis, std::vector<Doubt>& doubts) {
  const double slowdown = analysis.unprofiled ? analysis.unprofiled->slowdown : 0;
  if (slowdown <= kMuchOverhead) return;
  const bool serious = slowdown > kMostOverhead;
  doubts.push_back({fmt::format("the profiler made steps {:.0f} % longer: how a step is divided is "
                                "less sure than how long it takes",
                                100 * slowdown),
                    serious ? 0.7 : 0.9,
                    serious,
                    "let nothing else run beside it, so that profiled steps are like the others"});
}

bool shows_work(const Trace& trace) {
  return std::any_of(trace.kind.begin(), trace.kind.end(), [](EventKind kind) {
    return kind == EventKind::kOperator || kind == EventKind::kRuntime || is_device_work(kind);
  });
}

void doubt_model(const Analysis& analysis, std::vector<Doubt>& doubts) {
  const Breakdown& mean = analysis.breakdown;
  const double absent = mean.starved + mean.launch + mean.blocking + mean.unknown;
  if (absent > 0 && mean.unknown > kMuchUnknown * absent && mean.unknown > 0.03 * mean.wall)
    doubts.push_back({fmt::format("{:.2f} of {:.2f} ms without compute have no cause in the trace",
                                  mean.unknown,
                                  absent),
                      0.7,
                      true,
                      "record the calls of the runtime too, and synchronization events"});
  if (analysis.replay_error && *analysis.replay_error > kMostReplayError)
    doubts.push_back(
        {fmt::format("a replay of the trace as it is misses the measured step by {:.0f} %",
                     100 * *analysis.replay_error),
         0.7,
         true,
         "record synchronization events and host threads, so that what waits for what is known"});
}

// Returns a command or code that records the program again with what was missing.
std::string recapture(const Trace& trace) {
  if (trace.recorder == "nsys")
    return "nsys profile --trace=cuda,nvtx,osrt --cuda-graph-trace=node -o again PROGRAM && "
           "nsys export --type=sqlite again.nsys-rep";
  if (trace.recorder == "ridge") return "ridge train CONFIG --trace trace.json";
  return "with torch.profiler.profile(schedule=torch.profiler.schedule(wait=5, warmup=3, "
         "active=10), on_trace_ready=lambda p: p.export_chrome_trace('again.json')) as profiler: "
         "...  # profiler.step() after each step";
}

}  // namespace

std::vector<Doubt> doubts_of(const Trace& trace, const Analysis& analysis) {
  std::vector<Doubt> doubts;
  doubt_recording(trace, doubts);
  doubt_steps(trace, analysis.steps, doubts);
  doubt_profiler(analysis, doubts);
  if (analysis.unprofiled && !shows_work(trace))
    doubts.push_back({"no operators were recorded: only steps, and what they wait for, are known",
                      0.7,
                      true,
                      "let it run until the profile of its steps is written"});
  else
    doubt_model(analysis, doubts);
  std::stable_sort(doubts.begin(), doubts.end(), [](const Doubt& a, const Doubt& b) {
    return a.trust < b.trust;
  });
  return doubts;
}

double trust_in(const std::vector<Doubt>& doubts) {
  double trust = 1;
  for (const Doubt& doubt : doubts) trust *= doubt.trust;
  return std::max(0.1, trust);
}

void r00_unfit(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const std::vector<Doubt> doubts = doubts_of(trace, analysis);
  if (doubts.empty()) {
    output.not_fired.push_back({"R00", "the trace is complete"});
    return;
  }
  Finding finding{.rule = "R00", .title = "the trace tells less than it should"};
  const bool serious =
      std::any_of(doubts.begin(), doubts.end(), [](const Doubt& doubt) { return doubt.serious; });
  finding.severity = serious ? Severity::kWarning : Severity::kInfo;
  for (const Doubt& doubt : doubts) finding.evidence.push_back({.text = doubt.text});
  finding.fix = doubts.front().fix + "; what else is said here is worth less until then";
  finding.command = recapture(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
