// R21: the optimizer launches kernels for each tensor by itself.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.10, .warning = 0.10, .high = 0.20};
constexpr double kFewKernels = 20;  // A step: no more than a model of few tensors has in any case.
// Bytes a parameter: of a pass of one FP32 operation (two reads and a write), and of all of Adam.
constexpr double kBytesOfPass = 12, kBytesOfUpdate = 28;
constexpr double kSure = 0.5;
constexpr std::string_view kFix =
    "let the optimizer update many tensors with one kernel (fused=True, else foreach=True)";

struct Updates {
  std::vector<size_t> rows;
  std::vector<std::vector<size_t>> by_step;  // One entry for each step that has an update.
  double kernels = 0;                        // A step.
  double tensors = 0;                        // Tensors that have an update of their own.
  double span_ms = 0;  // From the first kernel of an update to its last, a step.
  bool is_fused = false;
  Intervals at;
};

// How often the middle one of the operators is called in an update: most are once a tensor.
double tensors_of(const Trace& trace) {
  const std::vector<Intervals> ranges = optimizer_ranges(trace);
  std::map<uint32_t, double> calls;
  size_t updates = 0;
  for (const Intervals& each : ranges) updates += each.size();
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kOperator &&
        !clipped(ranges[trace.lane[row]], {trace.start_ns[row], trace.start_ns[row] + 1}).empty())
      ++calls[trace.name[row]];
  std::vector<double> counts;
  for (const auto& [name, count] : calls) counts.push_back(count / static_cast<double>(updates));
  return std::max(1.0, middle_of(std::move(counts)));
}

// Updates of the weights come one a step: what is between their kernels is theirs.
Updates updates_of(const Trace& trace, const Analysis& analysis) {
  Updates updates;
  updates.rows = optimizer_kernels(trace, analysis, analysis.kernels);
  if (updates.rows.empty()) return updates;
  size_t fused = 0;
  ByName kind_of(trace, kind_of_kernel);
  auto window = analysis.steps.windows.begin();
  for (size_t row : updates.rows) {
    fused += kind_of(row) == KernelKind::kOptimizer;
    bool is_new = updates.by_step.empty();
    while (trace.start_ns[row] >= window->end) {
      ++window;
      is_new = true;
    }
    if (is_new) updates.by_step.emplace_back();
    updates.by_step.back().push_back(row);
  }
  std::vector<Interval> spans;
  for (const std::vector<size_t>& rows : updates.by_step) {
    spans.push_back({trace.start_ns[rows.front()], trace.end_ns(rows.front())});
    for (size_t row : rows) spans.back().end = std::max(spans.back().end, trace.end_ns(row));
  }
  const double steps = static_cast<double>(analysis.steps.windows.size());
  updates.is_fused = 2 * fused >= updates.rows.size();
  updates.kernels = static_cast<double>(updates.rows.size()) / steps;
  updates.tensors = tensors_of(trace);
  updates.at = union_of(std::move(spans));
  updates.span_ms = static_cast<double>(total_length(updates.at)) * 1e-6 / steps;
  return updates;
}

std::string reason_against(const Updates& updates, const Analysis& analysis) {
  if (updates.rows.empty()) return "no kernels of an optimizer are known";
  if (updates.is_fused) return "the optimizer updates many tensors with a kernel";
  return fmt::format("the optimizer takes {:.1f} % of a step, with {:.0f} kernels",
                     100 * share_of(updates.span_ms, analysis),
                     updates.kernels);
}

// One kernel an update, which takes `share` of what all of them took, and one call that issues it.
void with_one_kernel(const Trace& trace,
                     const Analysis& analysis,
                     const Updates& updates,
                     double share,
                     WhatIf& what_if) {
  std::vector<Interval> issuing;
  for (const std::vector<size_t>& rows : updates.by_step) {
    int64_t ns = 0;
    for (size_t row : rows) ns += trace.duration_ns[row];
    what_if.fuse(rows, static_cast<int64_t>(share * static_cast<double>(ns)));
    const size_t first = call_of(trace, analysis, rows.front());
    const size_t last = call_of(trace, analysis, rows.back());
    if (std::max(first, last) < trace.size() && trace.end_ns(first) < trace.start_ns[last])
      issuing.push_back({trace.end_ns(first), trace.start_ns[last]});
  }
  what_if.remove_host_time(union_of(std::move(issuing)));
}

}  // namespace

void r21_unfused_optimizer(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const Updates updates = updates_of(trace, analysis);
  if (share_of(updates.span_ms, analysis) < kLadder.info || updates.is_fused ||
      updates.kernels < kFewKernels || updates.kernels < updates.tensors) {
    output.not_fired.push_back({"R21", reason_against(updates, analysis)});
    return;
  }
  // Fused, each parameter is read and written once, however many passes there were.
  const double passes = updates.kernels / updates.tensors;
  const double share = std::min(1.0, kBytesOfUpdate / (kBytesOfPass * passes));
  const double left = share * ms_a_step(trace, analysis, updates.rows);
  Finding finding{.rule = "R21", .title = "the optimizer updates each tensor by itself"};
  charge(finding, analysis, std::max(0.0, updates.span_ms - left), kSure);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.8;
  finding.evidence.push_back({.rows = longest_of(trace, updates.rows),
                              .text = fmt::format("{:.0f} kernels a step in {:.2f} of {:.2f} ms",
                                                  updates.kernels,
                                                  updates.span_ms,
                                                  analysis.breakdown.wall)});
  finding.at = updates.at;
  // The host may be what holds the rest of the step up then: a replay knows.
  predict(finding, foresee(analysis), [&](WhatIf& what_if) {
    with_one_kernel(trace, analysis, updates, share, what_if);
  });
  report(output,
         trace,
         std::move(finding),
         {.fix = kFix, .semantic_class = SemanticClass::kReassociation});
}

}  // namespace ridge::doctor
