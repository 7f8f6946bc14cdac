// R22: compute waits for communication.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.03, .warning = 0.03, .high = 0.15};
constexpr double kTail = 0.4;  // Share of all communication.
constexpr std::string_view kFix =
    "let it run beside compute: reduce gradients in buckets as backward makes them, send fewer "
    "bytes (bf16), or do so once in several micro-batches";

struct Blocking {
  double cost_ms = 0, exposed_ms = 0;  // A step.
  std::map<size_t, int64_t> held_by;   // By collective: nanoseconds that compute waited for it.
  std::vector<Interval> at;
};

// Rows, ascending.
std::vector<size_t> collectives_of(const Trace& trace) {
  std::vector<size_t> rows;
  ByName communicates(trace, is_communication);
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kKernel && communicates(row)) rows.push_back(row);
  return rows;
}

// Exposed is what runs while nothing computes; blocking is what the next kernel waits for. Where
// the host is late too, the one is more than the other, and overlap would not give it back.
Blocking blocking_of(const Trace& trace, const Analysis& analysis) {
  Blocking blocking;
  const std::vector<size_t> collectives = collectives_of(trace);
  std::vector<Interval> idle, running;
  for (const Gap& gap : analysis.gaps) {
    idle.push_back(gap.at);
    if (gap.blocking_ns <= 0) continue;
    std::vector<Interval> held;
    for (const size_t row : gap.blockers) {
      if (!std::binary_search(collectives.begin(), collectives.end(), row)) continue;
      const Interval part{std::max(trace.start_ns[row], gap.at.begin),
                          std::min(trace.end_ns(row), gap.at.end)};
      held.push_back(part);
      blocking.held_by[row] += std::min(part.length(), gap.blocking_ns);
    }
    const Intervals at = union_of(std::move(held));
    blocking.cost_ms += static_cast<double>(std::min(total_length(at), gap.blocking_ns)) / 1e6;
    blocking.at.insert(blocking.at.end(), at.begin(), at.end());
  }
  for (const size_t row : collectives)
    if (trace.lane_of(row).device == analysis.device)
      running.push_back({trace.start_ns[row], trace.end_ns(row)});
  const Intervals exposed =
      intersection_of(union_of(std::move(idle)), union_of(std::move(running)));
  const auto steps = static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
  blocking.exposed_ms = static_cast<double>(total_length(exposed)) / 1e6 / steps;
  blocking.cost_ms /= steps;
  return blocking;
}

// Collectives that were issued in the steps and run after the last one block for the same share of
// their time as those in the steps.
void without_blocking(const Trace& trace,
                      const Analysis& analysis,
                      const Blocking& blocking,
                      WhatIf& what_if) {
  double held_ns = 0, whole_ns = 0;
  for (const auto& [row, held] : blocking.held_by) {
    what_if.set_duration(row, trace.duration_ns[row] - held);
    held_ns += static_cast<double>(held);
    whole_ns += static_cast<double>(trace.duration_ns[row]);
  }
  if (!(whole_ns > 0)) return;
  const int64_t end = analysis.steps.windows.back().end;
  for (const size_t row : collectives_of(trace))
    if (trace.start_ns[row] >= end)
      what_if.scale_duration(row, std::max(0.0, 1 - held_ns / whole_ns));
}

}  // namespace

void r22_blocking_communication(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const Blocking blocking = blocking_of(trace, analysis);
  const double share = share_of(blocking.cost_ms, analysis);
  const std::string text = fmt::format(
      "compute waits {:.2f} ms a step for communication; {:.2f} ms of it are exposed, "
      "of {:.2f} ms in all",
      blocking.cost_ms,
      blocking.exposed_ms,
      analysis.breakdown.communication);
  if (share < kLadder.info) {
    output.not_fired.push_back(
        {"R22", analysis.breakdown.communication > 0 ? text : "nothing is communicated"});
    return;
  }
  Finding finding{.rule = "R22", .title = "compute waits for communication"};
  // Once most of the communication runs beside compute, the rest may be the last bucket, which has
  // nothing left to run beside.
  const bool is_overlapped = blocking.cost_ms < kTail * analysis.breakdown.communication;
  finding.severity = is_overlapped ? Severity::kInfo : severity_of(share, kLadder);
  charge(finding, analysis, blocking.cost_ms);
  finding.at = union_of(blocking.at);
  Evidence evidence{.text = text};
  for (const auto& [row, held] : blocking.held_by)
    if (evidence.rows.size() < 5) evidence.rows.push_back(row);
  finding.evidence.push_back(std::move(evidence));
  predict(finding, foresee(analysis), [&](WhatIf& what_if) {
    without_blocking(trace, analysis, blocking, what_if);
  });
  report(output,
         trace,
         std::move(finding),
         {.fix = kFix, .semantic_class = SemanticClass::kReassociation});
}

}  // namespace ridge::doctor
