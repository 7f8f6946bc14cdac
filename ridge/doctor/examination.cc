#include "ridge/doctor/examination.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ridge/base/error.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/replay/replay.h"
#include "ridge/doctor/rules/straggler.h"

namespace ridge::doctor {
namespace {

std::string rank_name(const Trace& trace) {
  return trace.rank >= 0 ? fmt::format("rank {}", trace.rank) : trace.source;
}

// Lists the causes of starvation, the largest first.
std::string starved_by(const Breakdown& mean) {
  std::vector<std::pair<double, std::string_view>> causes;
  for (size_t i = 0; i < kHostCauses; ++i)
    if (mean.starved_by[i] >= 0.005)
      causes.push_back({-mean.starved_by[i], name_of(static_cast<HostCause>(i))});
  std::sort(causes.begin(), causes.end());
  std::string text;
  for (const auto& [ms, name] : causes)
    text += fmt::format("{}{} {:.2f} ms", text.empty() ? "" : ", ", name, -ms);
  return text;
}

// Time on the same lane is the innermost operator's: each is counted once.
std::vector<int64_t> own_times(const Trace& trace) {
  std::vector<int64_t> own(trace.size());
  std::vector<std::vector<size_t>> open(trace.lanes.size());
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kOperator) continue;
    std::vector<size_t>& stack = open[trace.lane[row]];
    while (!stack.empty() && trace.end_ns(stack.back()) <= trace.start_ns[row]) stack.pop_back();
    own[row] = trace.duration_ns[row];
    if (!stack.empty()) {
      const int64_t shared = std::min(trace.end_ns(row), trace.end_ns(stack.back()));
      own[stack.back()] -= std::max<int64_t>(0, shared - trace.start_ns[row]);
    }
    stack.push_back(row);
  }
  return own;
}

// The share of a row that lies within steady steps.
double share_within(const Trace& trace, size_t row, const std::vector<Interval>& windows) {
  auto window = std::upper_bound(
      windows.begin(), windows.end(), trace.start_ns[row], [](int64_t at, const Interval& each) {
        return at < each.end;
      });
  if (trace.duration_ns[row] == 0)
    return window != windows.end() && window->begin <= trace.start_ns[row] ? 1 : 0;
  int64_t within = 0;
  for (; window != windows.end() && window->begin < trace.end_ns(row); ++window)
    within += Interval{std::max(window->begin, trace.start_ns[row]),
                       std::min(window->end, trace.end_ns(row))}
                  .length();
  return static_cast<double>(within) / static_cast<double>(trace.duration_ns[row]);
}

}  // namespace

Examination examine(Trace trace) {
  Analysis analysis = analyse_and_replay(trace);
  Diagnosis diagnosis = diagnose(trace, analysis);
  return {std::move(trace), std::move(analysis), std::move(diagnosis)};
}

Examination examine(std::vector<Trace> traces) {
  check_internal(!traces.empty(), "[doctor] no trace to examine");
  if (traces.size() == 1) return examine(std::move(traces.front()));
  std::vector<Analysis> analyses;
  std::vector<RankRow> rows;
  for (const Trace& trace : traces) {
    const Analysis& analysis = analyses.emplace_back(analyse_and_replay(trace));
    rows.push_back({trace.source,
                    trace.rank,
                    analysis.step_ms_median,
                    analysis.breakdown.compute,
                    analysis.breakdown.communication});
  }
  std::vector<RankView> ranks;
  for (size_t i = 0; i < traces.size(); ++i)
    ranks.push_back({&traces[i], &analyses[i], analyses[i].device, rank_name(traces[i])});
  // The late one's own trace says why the others wait.
  const size_t told = late_rank(ranks).value_or(0);
  std::swap(ranks[0], ranks[told]);
  RuleOutput known;
  find_straggler(ranks, known);
  Diagnosis diagnosis = diagnose(traces[told], analyses[told], std::move(known));
  return {std::move(traces[told]), std::move(analyses[told]), std::move(diagnosis), rows};
}

size_t slowest_rank(std::span<const RankRow> ranks) {
  const auto own_ms = [](const RankRow& rank) { return rank.step_ms - rank.communication_ms; };
  const auto slowest = std::ranges::max_element(ranks, {}, own_ms);
  return slowest == ranks.end() ? 0 : static_cast<size_t>(slowest - ranks.begin());
}

bool has_findings(const Diagnosis& diagnosis) {
  return std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(), is_worth_fixing);
}

std::vector<StepPart> parts_of_step(const Analysis& analysis) {
  const Breakdown& mean = analysis.breakdown;
  return {{analysis.is_cpu_only ? "operators" : "compute", mean.compute},
          {"starved", mean.starved, starved_by(mean)},
          {"launch", mean.launch},
          {"blocking", mean.blocking},
          {"unknown", mean.unknown}};
}

double ceiling_without_gaps(const Analysis& analysis) {
  const Breakdown& mean = analysis.breakdown;
  return mean.compute > 0 ? speedup_without(mean.wall - mean.compute, mean.wall) : 1;
}

std::vector<NameRow> rows_by_name(const Trace& trace, const Analysis& analysis, size_t most) {
  struct Sum {
    double count = 0, ns = 0;
  };
  std::unordered_map<uint32_t, Sum> sums;
  const std::vector<int64_t> own =
      analysis.is_cpu_only ? own_times(trace) : std::vector<int64_t>(trace.duration_ns);
  for (size_t row = 0; row < trace.size(); ++row) {
    const bool counts = analysis.is_cpu_only ? trace.kind[row] == EventKind::kOperator
                                             : is_device_work(trace.kind[row]) &&
                                                   trace.lane_of(row).device == analysis.device;
    if (!counts) continue;
    const double share = share_within(trace, row, analysis.steps.windows);
    if (share == 0) continue;
    Sum& sum = sums[trace.name[row]];
    sum.count += share;
    sum.ns += share * static_cast<double>(std::max<int64_t>(0, own[row]));
  }
  const auto steps = static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
  std::vector<NameRow> rows;
  for (const auto& [name, sum] : sums) {
    const double ms = sum.ns / 1e6 / steps;
    rows.push_back({trace.names[name], sum.count / steps, ms, share_of(ms, analysis)});
  }
  std::sort(rows.begin(), rows.end(), [](const NameRow& a, const NameRow& b) {
    return std::pair(-a.ms, a.name) < std::pair(-b.ms, b.name);
  });
  if (rows.size() > most) rows.resize(most);
  return rows;
}

std::string steps_text(const Steps& steps) {
  const size_t count = steps.windows.size();
  if (count == 0) return "no steady step";
  std::string text =
      steps.are_marked()
          ? fmt::format("{} steady {} ({})", count, count == 1 ? "step" : "steps", steps.source)
          : std::string("the whole trace as one step");
  return steps.left_out > 0 ? text + fmt::format(", {} left out", steps.left_out) : text;
}

std::string unprofiled_text(const Analysis& analysis) {
  if (!analysis.unprofiled) return {};
  const auto& [steps, slowdown] = *analysis.unprofiled;
  std::string text = fmt::format("{} {} without a profiler", steps, steps == 1 ? "step" : "steps");
  if (slowdown >= 0.005) text += fmt::format(", which makes them {:.0f} % longer", 100 * slowdown);
  return text;
}

std::string verdict_text(const Examination& examination) {
  const Analysis& analysis = examination.analysis;
  if (analysis.steps.windows.empty()) return "no steady step was found: nothing can be said of it";
  for (const Finding& finding : examination.diagnosis.findings)
    if (is_worth_fixing(finding) && finding.cost_ms > 0)
      return fmt::format("first {}: {} ({:.2f} ms of a step, {:.0f} %)",
                         finding.rule,
                         finding.title,
                         finding.cost_ms,
                         100 * finding.share);
  if (analysis.unprofiled && !(analysis.breakdown.compute > 0))
    return "no rule found what to fix, but what a step computes was not recorded";
  const double ceiling = ceiling_without_gaps(analysis);
  if (ceiling < kNearlyOne)
    return fmt::format("nothing here is worth fixing; ceiling {:.2f}x", ceiling);
  return fmt::format(
      "no rule found what to fix, though {:.0f} % of a step has nothing computing; ceiling {:.2f}x",
      100 * (1 - 1 / ceiling),
      ceiling);
}

}  // namespace ridge::doctor
