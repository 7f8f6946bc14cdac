// R11: code is loaded, compiled or searched for in steady steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.01, .warning = 0.05, .high = 0.15};
constexpr std::string_view kFix =
    "run each shape once before the steps that count, keep shapes fixed, and keep what was "
    "compiled (a cache of compiled code, CUDA_MODULE_LOADING=EAGER)";

struct Loads {
  std::vector<size_t> rows;
  std::set<size_t> steps;  // Numbers of those they are in.
  Intervals exposed;       // While nothing computes.
};

Loads loads_of(const Trace& trace, const Analysis& analysis) {
  Loads loads;
  std::vector<Interval> stretches, idle;
  const std::vector<HostCause> causes = causes_of(trace);
  const std::vector<Interval>& windows = analysis.steps.windows;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (causes[row] != HostCause::kModule) continue;
    for (size_t step = 0; step < windows.size(); ++step) {
      if (trace.start_ns[row] >= windows[step].end || trace.end_ns(row) <= windows[step].begin)
        continue;
      loads.steps.insert(step);
      if (loads.rows.empty() || loads.rows.back() != row) loads.rows.push_back(row);
    }
    stretches.push_back({trace.start_ns[row], trace.end_ns(row)});
  }
  for (const Gap& gap : analysis.gaps)
    if (gap.by_cause_ns[static_cast<size_t>(HostCause::kModule)] > 0) idle.push_back(gap.at);
  loads.exposed = intersection_of(union_of(std::move(stretches)), union_of(std::move(idle)));
  return loads;
}

}  // namespace

void r11_late_modules(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const double cost = analysis.breakdown.starved_by[static_cast<size_t>(HostCause::kModule)];
  if (!(share_of(cost, analysis) > kLadder.info)) {
    output.not_fired.push_back({"R11", "no code is loaded or compiled in steady steps"});
    return;
  }
  const Loads loads = loads_of(trace, analysis);
  Finding finding{.rule = "R11", .title = "code is loaded or compiled after the warm-up"};
  charge(finding, analysis, cost, 0.8);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.9;
  std::map<std::string, size_t> names;
  for (size_t row : loads.rows) ++names[std::string(trace.name_text(row))];
  std::string most;
  for (const auto& [name, count] : names)
    if (most.empty() || count > names[most]) most = name;
  finding.evidence.push_back({.rows = longest_of(trace, loads.rows),
                              .text = fmt::format("{} calls, most of them {}, in {} of {} steps; "
                                                  "{:.2f} ms a step with nothing to compute",
                                                  loads.rows.size(),
                                                  short_name(most),
                                                  loads.steps.size(),
                                                  analysis.steps.windows.size(),
                                                  cost)});
  finding.at = loads.exposed;
  report(output, trace, std::move(finding), {.fix = kFix});
}

}  // namespace ridge::doctor
