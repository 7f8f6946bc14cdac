// A live program: marks of all its steps, a profile of a few, and what its processes did.
#include "ridge/doctor/live/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/live/live_parts.h"
#include "ridge/doctor/replay/replay.h"
#include "ridge/doctor/rules/loader_spans.h"
#include "ridge/doctor/rules/small_operators.h"

namespace ridge::doctor {
namespace {

constexpr std::string_view kAgain = "ridge doctor -- COMMAND";

constexpr std::string_view kProfiling = "ridge profiling";

Intervals profiled_in(const Trace& spans) {
  std::vector<Interval> profiled;
  for (size_t row = 0; row < spans.size(); ++row)
    if (spans.name_text(row) == kProfiling)
      profiled.push_back({spans.start_ns[row], spans.end_ns(row)});
  return union_of(std::move(profiled));
}

bool is_step(std::string_view name) { return step_mark_rank(without_numbers(name)) > 0; }

// Steps by their marks, but for those that the profiler slowed.
Steps unprofiled_steps(const Trace& spans) {
  Steps steps = find_steps(spans);
  if (!is_step(steps.source)) return {};
  const Intervals slowed = profiled_in(spans);
  steps.left_out += static_cast<int64_t>(std::erase_if(
      steps.windows, [&](const Interval& step) { return !clipped(slowed, step).empty(); }));
  return steps;
}

// Adds marks that were made while the profiler ran to its trace, where both clocks agree: they show
// what a thread did between operators.
void add_marks(const Trace& spans, Trace& trace) {
  if (trace.base_ns == 0 || spans.base_ns == 0 || trace.size() == 0) return;
  // Days apart they are not of one program, and differences of broken ones go over.
  constexpr double kFarApartNs = 1e15;
  if (std::abs(static_cast<double>(spans.base_ns) - static_cast<double>(trace.base_ns)) >
      kFarApartNs)
    return;
  const int64_t shift = spans.base_ns - trace.base_ns;
  const Intervals profiled = profiled_in(spans);
  const Steps steps = find_steps(trace);
  if (steps.windows.empty()) return;
  const Interval span{steps.windows.front().begin - shift, steps.windows.back().end - shift};
  if (total_length(clipped(profiled, span)) < span.length()) return;
  for (size_t row = 0; row < spans.size(); ++row) {
    const std::string_view name = spans.name_text(row);
    const bool is_within = spans.end_ns(row) > span.begin && spans.start_ns[row] < span.end;
    if (!is_within || name == kProfiling || is_step(name)) continue;
    const Lane& lane = spans.lane_of(row);
    const auto same = std::find_if(trace.lanes.begin(), trace.lanes.end(), [&](const Lane& each) {
      return !each.is_device() && each.process == lane.process && each.thread == lane.thread;
    });
    if (same == trace.lanes.end()) continue;
    const auto known =
        std::find(trace.names.begin(), trace.names.end(), name) - trace.names.begin();
    if (static_cast<size_t>(known) == trace.names.size()) trace.names.emplace_back(name);
    TraceBuilder(trace).add(EventKind::kRange,
                            static_cast<uint32_t>(known),
                            static_cast<uint32_t>(same - trace.lanes.begin()),
                            spans.start_ns[row] + shift,
                            spans.duration_ns[row]);
  }
  trace.sort();
}

// Scales the profile's breakdown of a step to milliseconds of a step that is not profiled. Parts
// that the marks measured themselves are taken from them; all others shrink by one factor, for the
// profiler slows all of them alike.
Breakdown without_profiler(const Breakdown& profiled, const Breakdown& marked, bool is_cpu_only) {
  constexpr HostCause kMeasured[] = {HostCause::kLoader, HostCause::kCheckpoint};
  double before = profiled.wall, after = marked.wall;
  if (is_cpu_only)
    for (HostCause cause : kMeasured) {
      before -= profiled.starved_by[static_cast<size_t>(cause)];
      after -= marked.starved_by[static_cast<size_t>(cause)];
    }
  const double factor = before > 0 ? std::max(0.0, after) / before : 0;
  Breakdown mean = profiled;
  for (double* part : {&mean.busy,
                       &mean.compute,
                       &mean.copy,
                       &mean.communication,
                       &mean.idle,
                       &mean.starved,
                       &mean.launch,
                       &mean.blocking,
                       &mean.unknown})
    *part *= factor;
  for (double& part : mean.starved_by) part *= factor;
  mean.wall = marked.wall;
  if (!is_cpu_only) return mean;
  for (HostCause cause : kMeasured) {
    const auto at = static_cast<size_t>(cause);
    mean.starved += marked.starved_by[at] - mean.starved_by[at];
    mean.starved_by[at] = marked.starved_by[at];
  }
  mean.idle = mean.wall - mean.busy;
  return mean;
}

bool is_of_marks(std::string_view rule) {
  return rule == "R01" || rule == "R02" || rule == "R29" || rule == "R30";
}

// Converts milliseconds to those of a step that is not profiled; shares hold. The profile shows
// usual steps, the marks and the processes show all.
void tell_unprofiled(Analysis& analysis, Diagnosis& diagnosis, const Analysis& marked) {
  const double wall = marked.breakdown.wall;
  analysis.step_ms_median = marked.step_ms_median;
  analysis.step_ms_min = marked.step_ms_min;
  analysis.step_ms_max = marked.step_ms_max;
  analysis.breakdown = without_profiler(analysis.breakdown, marked.breakdown, analysis.is_cpu_only);
  for (Finding& finding : diagnosis.findings) {
    if (!(finding.cost_ms > 0)) continue;
    const double usual =
        is_of_marks(finding.rule) ? 1 : std::min(1.0, marked.step_ms_median / std::max(wall, 1e-9));
    const auto share_of_gain = [usual](double gain) { return usual * (1 - 1 / gain); };
    const double least = share_of_gain(finding.predicted.low);
    const double most = share_of_gain(finding.predicted.high);
    charge(finding, analysis, usual * finding.share * wall);
    finding.predicted = {speedup_without(least * wall, wall), speedup_without(most * wall, wall)};
  }
  diagnosis = ranked({std::move(diagnosis.findings), std::move(diagnosis.not_fired)}, analysis);
}

// Converts costs of a rule that saw unprofiled steps to milliseconds of the profiled ones.
void tell_profiled(RuleOutput& known, const Analysis& marked, const Analysis& profiled) {
  const double factor =
      marked.breakdown.wall > 0 ? profiled.breakdown.wall / marked.breakdown.wall : 1;
  for (Finding& finding : known.findings) {
    finding.cost_ms *= factor;
    for (Evidence& evidence : finding.evidence) evidence.rows.clear();  // of the other trace
  }
}

void set_commands(Diagnosis& diagnosis) {
  for (Finding& finding : diagnosis.findings) finding.command = kAgain;
}

Examination of_no_steps(Trace trace, const LiveFacts& facts) {
  Analysis analysis = analyse_and_replay(trace);
  Finding finding{.rule = "R00", .title = "no training step was seen"};
  finding.severity = Severity::kWarning;
  finding.evidence.push_back(
      {.text = "looked for: steps of optimizers of torch.optim, and calls of the outermost "
               "torch.nn.Module"});
  if (!facts.step_source.empty())
    finding.evidence.push_back(
        {.text = fmt::format("steps by the {} had begun, but too few of them "
                             "were there to be measured",
                             facts.step_source)});
  finding.fix =
      "let it run until at least 20 steps are done, and see that the process which trains is the "
      "one "
      "that was started or a child of it";
  RuleOutput known;
  known.findings.push_back(std::move(finding));
  judge_processors(facts, analysis, known);
  Diagnosis diagnosis = diagnose(trace, analysis, std::move(known));
  set_commands(diagnosis);
  return {std::move(trace), std::move(analysis), std::move(diagnosis)};
}

// The marks alone: what is within a step nobody knows.
Examination of_marks(Trace spans, Analysis marked, const LiveFacts& facts) {
  marked.batch = facts.batch;
  marked.unprofiled = Unprofiled{.steps = static_cast<int64_t>(marked.steps.windows.size())};
  RuleOutput known;
  judge_marks(spans, marked, facts, known);
  judge_processors(facts, marked, known);
  Diagnosis diagnosis = diagnose(spans, marked, std::move(known));
  set_commands(diagnosis);
  return {std::move(spans), std::move(marked), std::move(diagnosis)};
}

Examination of_profile(Trace trace, Analysis profiled, const LiveFacts& facts) {
  RuleOutput known;
  judge_processors(facts, profiled, known);
  Diagnosis diagnosis = diagnose(trace, profiled, std::move(known));
  set_commands(diagnosis);
  return {std::move(trace), std::move(profiled), std::move(diagnosis)};
}

// Charges the loader's findings from the marks with the loader's stretches in the profile.
void place_loader(const Trace& trace, const Analysis& profiled, RuleOutput& known) {
  const Intervals starved = loader_time(trace, profiled).starved;
  for (Finding& finding : known.findings)
    finding.at = finding.rule == "R01" || finding.rule == "R02" ? starved : Intervals{};
}

}  // namespace

CallPlace place_of_calls(const Trace& stacks) {
  return small_operators(stacks, analyse(stacks)).place;
}

Examination examine_live(Trace trace, Trace spans, const LiveFacts& facts) {
  // It is never closed, and that is no loss.
  if (spans.is_truncated)
    std::erase_if(spans.warnings,
                  [](const Warning& each) { return each.text.starts_with("the file ends early"); });
  spans.is_truncated = false;
  Steps steps = unprofiled_steps(spans);
  add_marks(spans, trace);
  Analysis profiled = analyse_and_replay(trace);
  profiled.batch = facts.batch;
  profiled.place = facts.place;
  profiled.batches = facts.batches;
  profiled.short_products = facts.short_products;
  const bool has_profile = profiled.steps.are_marked() && !profiled.steps.windows.empty();
  const bool has_marks = !steps.windows.empty();
  if (!has_marks && !has_profile)
    return of_no_steps(trace.size() > 0 ? std::move(trace) : std::move(spans), facts);
  if (!has_marks) return of_profile(std::move(trace), std::move(profiled), facts);
  Analysis marked = analyse(spans, std::move(steps));
  marked.batches = facts.batches;
  if (!has_profile) {
    spans.source = trace.source.empty() ? spans.source : trace.source;
    return of_marks(std::move(spans), marked, facts);
  }
  profiled.unprofiled =
      Unprofiled{.steps = static_cast<int64_t>(marked.steps.windows.size()),
                 .slowdown = profiled.step_ms_median / std::max(marked.step_ms_median, 1e-9) - 1};
  RuleOutput known;
  judge_marks(spans, marked, facts, known);
  // Beside a device only its trace shows whether it had nothing to do meanwhile.
  if (!profiled.is_cpu_only) {
    std::erase_if(known.findings, [](const Finding& each) { return each.rule != "R29"; });
    std::erase_if(known.not_fired, [](const NotFired& each) { return each.rule != "R29"; });
  }
  tell_profiled(known, marked, profiled);
  place_loader(trace, profiled, known);
  judge_processors(facts, profiled, known);
  Diagnosis diagnosis = diagnose(trace, profiled, std::move(known));
  tell_unprofiled(profiled, diagnosis, marked);
  set_commands(diagnosis);
  return {std::move(trace), std::move(profiled), std::move(diagnosis)};
}

}  // namespace ridge::doctor
