// R17: kernels with fewer blocks than the device has multiprocessors.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.05, .warning = 0.05, .high = 0.20};
constexpr int64_t kShortNs = 10'000;
constexpr double kSure = 0.3;  // A kernel of few blocks may have little to do in parallel.
constexpr std::string_view kFix =
    "give a kernel more to do at once (a larger micro-batch, the work split along another axis), "
    "or run independent ones on streams beside it";

int32_t multiprocessors(const Trace& trace, int32_t device) {
  for (const Device& each : trace.devices)
    if (each.number == device) return each.multiprocessors;
  return 0;
}

// Time in which a kernel of the device runs beside another.
Intervals shared_time(const Trace& trace, int32_t device) {
  std::vector<Interval> shared;
  int64_t end = INT64_MIN;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kKernel || trace.lane_of(row).device != device) continue;
    if (trace.start_ns[row] < end)
      shared.push_back({trace.start_ns[row], std::min(end, trace.end_ns(row))});
    end = std::max(end, trace.end_ns(row));
  }
  return union_of(std::move(shared));
}

int64_t blocks_of(const Trace& trace, size_t row) {
  return trace.detail[row] == Trace::kNone ? 0 : trace.launches[trace.detail[row]].blocks();
}

// Long ones that leave multiprocessors without work. Persistent kernels have one block on each.
std::vector<size_t> small_kernels(const Trace& trace, const Analysis& analysis, int32_t width) {
  std::vector<size_t> rows;
  ByName communicates(trace, is_communication);
  for (size_t row : analysis.kernels) {
    const int64_t blocks = blocks_of(trace, row);
    if (blocks > 0 && blocks < width && trace.duration_ns[row] >= kShortNs && !communicates(row))
      rows.push_back(row);
  }
  return rows;
}

}  // namespace

void r17_few_blocks(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const int32_t width = multiprocessors(trace, analysis.device);
  if (width <= 0) {
    output.not_fired.push_back(
        {"R17", "the trace does not say how many multiprocessors the device has"});
    return;
  }
  const std::vector<size_t> rows = small_kernels(trace, analysis, width);
  const double busy = analysis.breakdown.busy;
  const double small_ms = ms_a_step(trace, analysis, rows);
  if (!(busy > 0) || small_ms < kLadder.info * busy) {
    output.not_fired.push_back(
        {"R17",
         fmt::format("{:.1f} % of busy time is in kernels with fewer blocks than the {} "
                     "multiprocessors",
                     busy > 0 ? 100 * small_ms / busy : 0,
                     width)});
    return;
  }
  // On all of them it would take its share of blocks; beside others it holds nobody up.
  const Intervals shared = shared_time(trace, analysis.device);
  double cost_ns = 0;
  for (size_t row : rows) {
    const Interval at{trace.start_ns[row], trace.end_ns(row)};
    const int64_t alone = at.length() - total_length(clipped(shared, at));
    cost_ns += static_cast<double>(alone) *
               (1 - static_cast<double>(blocks_of(trace, row)) / static_cast<double>(width));
  }
  Finding finding{.rule = "R17", .title = "kernels with too few blocks for the device"};
  const double steps = static_cast<double>(analysis.steps.windows.size());
  charge(finding, analysis, cost_ns * 1e-6 / steps, kSure);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.7;
  const std::vector<size_t> longest = longest_of(trace, rows);
  finding.evidence.push_back(
      {.rows = longest,
       .text = fmt::format("{:.2f} of {:.2f} ms busy in kernels that fill less than {} "
                           "multiprocessors; the longest is {} with {} blocks",
                           small_ms,
                           busy,
                           width,
                           short_name(trace.name_text(longest.front())),
                           blocks_of(trace, longest.front()))});
  finding.at = difference_of(stretches_of(trace, rows), shared);
  report(output,
         trace,
         std::move(finding),
         {.fix = kFix, .semantic_class = SemanticClass::kReassociation});
}

}  // namespace ridge::doctor
