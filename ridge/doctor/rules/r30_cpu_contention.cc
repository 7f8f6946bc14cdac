// R30: threads that should work wait for a processor, or for each other.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kQueue{.info = 0.03, .warning = 0.05, .high = 0.15};
constexpr Ladder kBarrier{.info = 0.10, .warning = 0.10, .high = 0.25};

bool waits_for_processor(std::string_view name) {
  for (const char* word : {"runnable",
                           "run queue",
                           "runqueue",
                           "sched_switch",
                           "preempt",
                           "throttl",
                           "off-cpu",
                           "not running"})
    if (holds(name, word)) return true;
  return false;
}

bool waits_for_threads(std::string_view name) {
  for (const char* word : {"barrier", "gomp_", "omp_wait", "thread join", "wait for threads"})
    if (holds(name, word)) return true;
  return false;
}

struct Waits {
  std::vector<Interval> stretches;
  std::vector<size_t> rows;
  size_t count = 0;
};

void add(const Trace& trace, size_t row, Waits& waits) {
  waits.stretches.push_back({trace.start_ns[row], trace.end_ns(row)});
  ++waits.count;
  if (waits.rows.size() < 3) waits.rows.push_back(row);
}

// The thread that launches, or on the CPU the one whose operators take longest.
uint32_t working_lane(const Trace& trace, const Analysis& analysis) {
  if (analysis.launching_lane != Trace::kNone) return analysis.launching_lane;
  std::vector<int64_t> time(trace.lanes.size());
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kOperator) time[trace.lane[row]] += trace.duration_ns[row];
  const auto most = std::max_element(time.begin(), time.end());
  return most == time.end() || *most == 0 ? Trace::kNone
                                          : static_cast<uint32_t>(most - time.begin());
}

// The part of a device's step in which its thread did not run, and nothing was computed meanwhile.
Intervals starved_off_cpu(const Analysis& analysis) {
  std::vector<Interval> stretches;
  for (const Gap& gap : analysis.gaps)
    if (const int64_t part = gap.by_cause_ns[static_cast<size_t>(HostCause::kOffCpu)]; part > 0)
      stretches.push_back({gap.at.begin, gap.at.begin + part});
  return union_of(std::move(stretches));
}

Finding finding_of(const Trace& trace,
                   const Analysis& analysis,
                   const Intervals& at,
                   const Waits& waits) {
  Finding finding{.rule = "R30"};
  double mean_ms = 0;
  const std::vector<double> steps = ms_in_steps(at, analysis.steps);
  for (double ms : steps) mean_ms += ms / static_cast<double>(steps.size());
  charge(finding, analysis, mean_ms);
  finding.at = at;
  finding.command = proof_of(trace, "cpu.pin=true");
  finding.evidence.push_back({.rows = waits.rows,
                              .text = fmt::format("{} waits, {:.2f} ms of a step of {:.2f} ms",
                                                  waits.count,
                                                  mean_ms,
                                                  analysis.breakdown.wall)});
  return finding;
}

}  // namespace

void r30_cpu_contention(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const uint32_t lane = working_lane(trace, analysis);
  Waits queue, barrier;
  bool has_waits = false;
  for (size_t row = 0; row < trace.size(); ++row) {
    has_waits |= trace.kind[row] == EventKind::kHostWait;
    if (trace.lane[row] != lane || trace.lane_of(row).is_device()) continue;
    if (trace.kind[row] != EventKind::kHostWait && trace.kind[row] != EventKind::kRange) continue;
    if (waits_for_processor(trace.name_text(row))) add(trace, row, queue);
    if (waits_for_threads(trace.name_text(row))) add(trace, row, barrier);
  }
  const Intervals steps = union_of({analysis.steps.windows.begin(), analysis.steps.windows.end()});
  Intervals off_cpu = intersection_of(union_of(queue.stretches), steps);
  // Beside a device, waiting costs nothing while it computes.
  if (!analysis.is_cpu_only) off_cpu = starved_off_cpu(analysis);
  const size_t before = output.findings.size();
  if (Finding finding = finding_of(trace, analysis, off_cpu, queue); finding.share >= kQueue.info) {
    finding.title = "the thread that matters waits for a processor";
    finding.severity = severity_of(finding.share, kQueue);
    finding.confidence = 0.8;
    finding.fix =
        "leave it a processor: fewer threads than processors over all programs (loader "
        "workers, OMP_NUM_THREADS), a larger cgroup quota, or pinned threads";
    output.findings.push_back(std::move(finding));
  }
  const Intervals waiting = intersection_of(union_of(barrier.stretches), steps);
  if (Finding finding = finding_of(trace, analysis, waiting, barrier);
      analysis.is_cpu_only && finding.share >= kBarrier.info) {
    finding.title = "threads wait for each other at the end of parallel work";
    finding.severity = severity_of(finding.share, kBarrier);
    finding.confidence = 0.7;
    finding.fix =
        "use fewer threads for small work, larger batches, or pin threads so that none "
        "shares a processor with another program";
    output.findings.push_back(std::move(finding));
  }
  if (output.findings.size() > before) return;
  output.not_fired.push_back(
      {"R30",
       has_waits
           ? fmt::format(
                 "its thread waits for a processor {:.1f} % of a step",
                 100 * share_of(static_cast<double>(total_length(off_cpu)) / 1e6 /
                                    std::max<double>(
                                        1, static_cast<double>(analysis.steps.windows.size())),
                                analysis))
           : "the trace does not show what threads wait for"});
}

}  // namespace ridge::doctor
