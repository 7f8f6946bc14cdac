#include "ridge/tune/pytorch/step_shares.h"

#include <algorithm>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/doctor/live/live.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/trace/intervals.h"

namespace ridge {
namespace {

// The name that torch gives the range of an update.
constexpr std::string_view kUpdate = "Optimizer.step#";

double share_of_updates(const doctor::Trace& trace, const doctor::Analysis& analysis) {
  std::vector<doctor::Interval> updates;
  for (size_t row = 0; row < trace.size(); ++row)
    if (!trace.lane_of(row).is_device() && trace.name_text(row).starts_with(kUpdate))
      updates.push_back({trace.start_ns[row], trace.end_ns(row)});
  const doctor::Intervals all = doctor::union_of(std::move(updates));
  double within = 0, whole = 0;
  for (const doctor::Interval& step : analysis.steps.windows) {
    within += static_cast<double>(doctor::total_length(doctor::clipped(all, step)));
    whole += static_cast<double>(step.length());
  }
  return whole > 0 ? within / whole : 0;
}

}  // namespace

StepShares step_shares(const doctor::Examination& examination) {
  const doctor::Analysis& analysis = examination.analysis;
  StepShares shares{.optimizer = share_of_updates(examination.trace, analysis)};
  if (!analysis.is_cpu_only && !analysis.kernels.empty() && analysis.breakdown.wall > 0)
    shares.device_idle = std::clamp(analysis.breakdown.idle / analysis.breakdown.wall, 0.0, 1.0);
  for (const doctor::Finding& finding : examination.diagnosis.findings)
    if (finding.cost_ms > 0 && doctor::is_worth_fixing(finding))
      shares.findings.push_back({.rule = std::string(finding.rule),
                                 .title = finding.title,
                                 .share = finding.share,
                                 .ceiling = finding.ceiling,
                                 .fix = finding.fix});
  return shares;
}

std::optional<StepShares> recorded_shares(const attach::ProcessFacts& facts) {
  if (facts.trace_path.empty() || facts.spans_path.empty()) return std::nullopt;
  try {
    doctor::LiveFacts seen{.torch_threads = facts.threads, .step_source = facts.step_source};
    if (!facts.loaders.empty()) {
      seen.batch = facts.loaders.front().batch;
      seen.loader_workers = facts.loaders.front().workers;
    }
    return step_shares(doctor::examine_live(
        doctor::read_trace(facts.trace_path), doctor::read_trace(facts.spans_path), seen));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace ridge
