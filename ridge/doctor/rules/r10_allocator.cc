// R10: device memory is allocated within the loop, while the device idles.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.01, .warning = 0.05, .high = 0.15};
constexpr size_t kWarmUp = 20;  // Steps in which pools still grow.
constexpr std::string_view kFix =
    "keep memory from step to step: no empty_cache() in the loop, a pool that may grow "
    "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), and the longest input first";

struct Calls {
  double cost_ms = 0;         // A step.
  std::vector<size_t> rows;   // In the steady steps.
  size_t late = 0;            // After the twentieth step.
  std::set<size_t> in_steps;  // Steps that have such a call.
  Intervals at;               // While nothing computed.
};

// Calls that wait for nothing, since they are ordered on a stream, are not meant.
bool allocates(const Trace& trace, HostCause cause, size_t row) {
  return trace.kind[row] == EventKind::kRuntime && cause == HostCause::kAllocation &&
         !holds(trace.name_text(row), "async");
}

Calls calls_of(const Trace& trace, const Analysis& analysis) {
  const std::vector<HostCause> causes = causes_of(trace);
  const auto& windows = analysis.steps.windows;
  Calls calls;
  std::vector<Interval> spent, idle;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!allocates(trace, causes[row], row)) continue;
    const auto after =
        std::upper_bound(windows.begin(),
                         windows.end(),
                         trace.start_ns[row],
                         [](int64_t time, const Interval& window) { return time < window.begin; });
    if (after == windows.begin() || trace.start_ns[row] >= (after - 1)->end) continue;
    const auto step = static_cast<size_t>(after - windows.begin()) - 1;
    calls.rows.push_back(row);
    calls.in_steps.insert(step);
    calls.late += step + static_cast<size_t>(analysis.steps.left_out) >= kWarmUp;
    spent.push_back({trace.start_ns[row], trace.end_ns(row)});
  }
  for (const Gap& gap : analysis.gaps) idle.push_back(gap.at);
  calls.at = intersection_of(union_of(std::move(spent)), union_of(std::move(idle)));
  calls.cost_ms = static_cast<double>(total_length(calls.at)) / 1e6 /
                  static_cast<double>(std::max<size_t>(1, windows.size()));
  return calls;
}

std::string text_of(const Trace& trace, const Calls& calls) {
  std::map<std::string_view, size_t> by_name;
  for (const size_t row : calls.rows) ++by_name[trace.name_text(row)];
  std::string text;
  for (const auto& [name, count] : by_name)
    text += fmt::format("{}{} calls of {}", text.empty() ? "" : ", ", count, name);
  return text + fmt::format(" in {} steady steps; {:.2f} ms a step while nothing computed",
                            calls.in_steps.size(),
                            calls.cost_ms);
}

}  // namespace

void r10_allocator(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const Calls calls = calls_of(trace, analysis);
  const double share = share_of(calls.cost_ms, analysis);
  if (share < kLadder.info && calls.late == 0) {
    output.not_fired.push_back(
        {"R10",
         fmt::format("{} allocations in the steady steps, {:.1f} % of the time",
                     calls.rows.size(),
                     100 * share)});
    return;
  }
  Finding finding{.rule = "R10", .title = "device memory is allocated within the loop"};
  // An allocation in few steps is a shape that came for the first time, or an evaluation.
  const bool is_rare = calls.in_steps.size() * 3 < analysis.steps.windows.size();
  finding.severity = is_rare ? Severity::kInfo : severity_of(share, kLadder);
  finding.confidence = is_rare ? 0.5 : 0.9;
  charge(finding, analysis, calls.cost_ms);
  finding.at = calls.at;
  Evidence evidence{.text = text_of(trace, calls)};
  for (size_t i = 0; i < std::min<size_t>(5, calls.rows.size()); ++i)
    evidence.rows.push_back(calls.rows[i]);
  finding.evidence.push_back(std::move(evidence));
  report(output, trace, std::move(finding), {.fix = kFix});
}

}  // namespace ridge::doctor
