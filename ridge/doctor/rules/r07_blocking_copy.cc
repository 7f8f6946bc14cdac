// R07: kernels wait for copies between host and device.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.03, .warning = 0.03, .high = 0.10};
constexpr std::string_view kFix =
    "copy the next batch on a stream of its own while this one computes, from pinned memory "
    "(pin_memory=True and non_blocking=True, two buffers in turn)";

bool is_host_memory(MemoryKind kind) {
  return kind == MemoryKind::kPageable || kind == MemoryKind::kPinned;
}

enum class Way { kOther, kToDevice, kToHost };

Way way_of(const Trace& trace, size_t row) {
  if (trace.kind[row] != EventKind::kCopy) return Way::kOther;
  if (trace.detail[row] != Trace::kNone) {
    const Transfer& transfer = trace.transfers[trace.detail[row]];
    if (is_host_memory(transfer.from) && transfer.to == MemoryKind::kDevice) return Way::kToDevice;
    if (is_host_memory(transfer.to) && transfer.from == MemoryKind::kDevice) return Way::kToHost;
  }
  const std::string_view name = trace.name_text(row);
  if (holds(name, "htod") || holds(name, "host -> device")) return Way::kToDevice;
  if (holds(name, "dtoh") || holds(name, "device -> host")) return Way::kToHost;
  return Way::kOther;
}

struct Blocking {
  double cost_ms = 0;  // A step.
  std::set<size_t> copies;
  std::vector<Interval> at;
};

// A copy that runs while something computes, or that nothing waits for, is in no gap's blockers.
Blocking blocking_of(const Trace& trace, const Analysis& analysis) {
  Blocking blocking;
  for (const Gap& gap : analysis.gaps) {
    if (gap.blocking_ns <= 0) continue;
    std::vector<Interval> held;
    for (const size_t row : gap.blockers) {
      if (way_of(trace, row) == Way::kOther) continue;
      held.push_back(
          {std::max(trace.start_ns[row], gap.at.begin), std::min(trace.end_ns(row), gap.at.end)});
      blocking.copies.insert(row);
    }
    const Intervals at = union_of(std::move(held));
    blocking.cost_ms += static_cast<double>(std::min(total_length(at), gap.blocking_ns)) / 1e6;
    blocking.at.insert(blocking.at.end(), at.begin(), at.end());
  }
  blocking.cost_ms /= static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
  return blocking;
}

std::string text_of(const Trace& trace, const Blocking& blocking) {
  int64_t bytes = 0;
  bool is_known = !blocking.copies.empty();
  for (const size_t row : blocking.copies) {
    const int64_t moved =
        trace.detail[row] == Trace::kNone ? -1 : trace.transfers[trace.detail[row]].bytes;
    is_known = is_known && moved >= 0;
    bytes += moved;
  }
  std::string text = fmt::format(
      "kernels wait {:.2f} ms a step for {} copies", blocking.cost_ms, blocking.copies.size());
  if (is_known) text += fmt::format(" of {:.1f} MB in all", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

void r07_blocking_copy(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const Blocking blocking = blocking_of(trace, analysis);
  const double share = share_of(blocking.cost_ms, analysis);
  if (share < kLadder.info) {
    output.not_fired.push_back(
        {"R07",
         fmt::format("kernels wait {:.1f} % of a step for copies from or to the host",
                     100 * share)});
    return;
  }
  Finding finding{.rule = "R07", .title = "kernels wait for copies between host and device"};
  finding.severity = severity_of(share, kLadder);
  charge(finding, analysis, blocking.cost_ms);
  finding.at = union_of(blocking.at);
  Evidence evidence{.text = text_of(trace, blocking)};
  for (const size_t row : blocking.copies)
    if (evidence.rows.size() < 5) evidence.rows.push_back(row);
  finding.evidence.push_back(std::move(evidence));
  predict(finding, foresee(analysis), [&](WhatIf& what_if) {
    for (const size_t row : blocking.copies)
      what_if.move_to_own_stream(row, way_of(trace, row) == Way::kToHost);
  });
  report(output, trace, std::move(finding), {.fix = kFix});
}

}  // namespace ridge::doctor
