// R06: copies that are meant to be asynchronous, and block since their memory is pageable.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.01, .warning = 0.05, .high = 0.20};
constexpr int64_t kLarge = 64 << 10;     // Smaller ones are staged by the driver.
constexpr int64_t kVeryLarge = 1 << 20;  // One of these is worth a word whatever it costs.
constexpr std::string_view kFix =
    "copy from pinned memory (pin_memory=True in the loader, non_blocking=True where it is "
    "copied), from a ring of buffers that is made once";

bool is_pageable(const Transfer& copy) {
  return copy.from == MemoryKind::kPageable || copy.to == MemoryKind::kPageable;
}

// Large pageable copies of the steps whose calls returned only when the copy had begun.
std::vector<size_t> blocking_copies(const Trace& trace, const Analysis& analysis) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kCopy || trace.detail[row] == Trace::kNone ||
        trace.lane_of(row).device != analysis.device)
      continue;
    const Transfer& copy = trace.transfers[trace.detail[row]];
    if (!copy.is_async || copy.bytes < kLarge || !is_pageable(copy)) continue;
    const size_t call = call_of(trace, analysis, row);
    if (call < trace.size() && trace.end_ns(call) < trace.start_ns[row]) continue;
    const bool in_step = std::any_of(
        analysis.steps.windows.begin(), analysis.steps.windows.end(), [&](const Interval& window) {
          return trace.start_ns[row] >= window.begin && trace.start_ns[row] < window.end;
        });
    if (in_step) rows.push_back(row);
  }
  return rows;
}

// While a copy or its call ran and nothing computed.
Intervals exposed(const Trace& trace, const Analysis& analysis, const std::vector<size_t>& copies) {
  std::vector<Interval> held, idle;
  for (size_t row : copies) {
    held.push_back({trace.start_ns[row], trace.end_ns(row)});
    const size_t call = call_of(trace, analysis, row);
    if (call < trace.size()) held.push_back({trace.start_ns[call], trace.end_ns(call)});
  }
  for (const Gap& gap : analysis.gaps) idle.push_back(gap.at);
  return intersection_of(union_of(std::move(held)), union_of(std::move(idle)));
}

}  // namespace

void r06_pageable_copies(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const std::vector<size_t> copies = blocking_copies(trace, analysis);
  const double steps = std::max(1.0, static_cast<double>(analysis.steps.windows.size()));
  const Intervals at = exposed(trace, analysis, copies);
  const double cost = static_cast<double>(total_length(at)) * 1e-6 / steps;
  int64_t bytes = 0, very_large = 0;
  for (size_t row : copies) {
    const int64_t size = trace.transfers[trace.detail[row]].bytes;
    bytes += size;
    very_large += size >= kVeryLarge;
  }
  const bool often = static_cast<double>(very_large) >= steps;
  if (share_of(cost, analysis) < kLadder.info && !often) {
    output.not_fired.push_back(
        {"R06",
         copies.empty() ? "no large copy goes through pageable memory"
                        : fmt::format("copies through pageable memory hold up {:.1f} % of a step",
                                      100 * share_of(cost, analysis))});
    return;
  }
  Finding finding{.rule = "R06", .title = "copies through pageable memory block the host"};
  charge(finding, analysis, cost);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.9;
  finding.evidence.push_back(
      {.rows = longest_of(trace, copies),
       .text = fmt::format("{:.1f} copies a step, {:.1f} MiB; {:.2f} ms of it while nothing "
                           "computes",
                           static_cast<double>(copies.size()) / steps,
                           static_cast<double>(bytes) / steps / (1 << 20),
                           cost)});
  finding.at = at;
  report(output, trace, std::move(finding), {.fix = kFix});
}

}  // namespace ridge::doctor
