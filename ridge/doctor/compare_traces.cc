#include "ridge/doctor/compare_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/stats.h"

namespace ridge::doctor {
namespace {

constexpr size_t kShownNames = 12, kComparedNames = 1000;

std::vector<double> step_times(const Examination& examination) {
  std::vector<double> times;
  for (const Interval& window : examination.analysis.steps.windows)
    times.push_back(static_cast<double>(window.length()) / 1e6);
  check(!times.empty() && median(times) > 0,
        "{}: no steady step was found, so there is nothing to compare",
        examination.trace.source);
  return times;
}

std::vector<std::string> finding_names(const Examination& examination) {
  std::vector<std::string> names;
  for (const Finding& finding : examination.diagnosis.findings)
    if (is_worth_fixing(finding))
      names.push_back(fmt::format("{} {}", finding.rule, finding.title));
  return names;
}

// Those of `here` whose rule `there` has nothing of.
std::vector<std::string> only_in(const std::vector<std::string>& here,
                                 const std::vector<std::string>& there) {
  std::vector<std::string> only;
  for (const std::string& name : here) {
    const std::string rule = name.substr(0, 3);
    if (std::none_of(there.begin(), there.end(), [&](const std::string& other) {
          return other.starts_with(rule);
        }))
      only.push_back(name);
  }
  return only;
}

std::vector<ComparedRow> compared_names(const Examination& before, const Examination& after) {
  std::map<std::string_view, ComparedRow> rows;
  for (const NameRow& row : rows_by_name(before.trace, before.analysis, kComparedNames))
    rows[row.name].before_ms = row.ms;
  for (const NameRow& row : rows_by_name(after.trace, after.analysis, kComparedNames))
    rows[row.name].after_ms = row.ms;
  std::vector<ComparedRow> sorted;
  for (auto& [name, row] : rows) {
    row.name = name;
    sorted.push_back(row);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const ComparedRow& a, const ComparedRow& b) {
    return std::fabs(a.after_ms - a.before_ms) > std::fabs(b.after_ms - b.before_ms);
  });
  if (sorted.size() > kShownNames) sorted.resize(kShownNames);
  return sorted;
}

void compare_steps(Comparison& comparison) {
  const std::vector<double>&before = comparison.before_steps_ms, &after = comparison.after_steps_ms;
  comparison.before_ms = median(before);
  comparison.after_ms = median(after);
  comparison.speedup = comparison.low = comparison.high =
      comparison.before_ms / comparison.after_ms;
  const auto first = median_interval(before, 0.95), second = median_interval(after, 0.95);
  if (first && second && second->low > 0) {
    comparison.has_interval = true;
    comparison.low = first->low / second->high;
    comparison.high = first->high / second->low;
  }
  comparison.is_regression =
      comparison.after_ms > comparison.before_ms * (1 + comparison.gate_percent / 100) &&
      (!comparison.has_interval || comparison.high < 1);
}

std::string rows_text(std::string_view title, const std::vector<ComparedRow>& rows) {
  std::string text =
      fmt::format("\n  {:<44} {:>10} {:>10} {:>10}\n", title, "before", "after", "change");
  for (const ComparedRow& row : rows) {
    text += fmt::format("  {:<44} {:>10.3f} {:>10.3f} {:>+10.3f}\n",
                        shortened(row.name, 43),
                        row.before_ms,
                        row.after_ms,
                        row.after_ms - row.before_ms);
  }
  return text;
}

}  // namespace

Comparison compare_traces(const Examination& before,
                          const Examination& after,
                          double gate_percent) {
  Comparison comparison{.before = before.trace.source,
                        .after = after.trace.source,
                        .before_steps_ms = step_times(before),
                        .after_steps_ms = step_times(after),
                        .gate_percent = gate_percent,
                        .parts = {},
                        .names = compared_names(before, after),
                        .gone = {},
                        .appeared = {}};
  compare_steps(comparison);
  const std::vector<StepPart> first = parts_of_step(before.analysis);
  const std::vector<StepPart> second = parts_of_step(after.analysis);
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].ms > 0 || second[i].ms > 0)  // what only devices have is 0 on the CPU
      comparison.parts.push_back({std::string(first[i].name), first[i].ms, second[i].ms});
  const std::vector<std::string> had = finding_names(before), has = finding_names(after);
  comparison.gone = only_in(had, has);
  comparison.appeared = only_in(has, had);
  return comparison;
}

std::string comparison_verdict(const Comparison& comparison) {
  const double percent = 100 * (comparison.after_ms / comparison.before_ms - 1);
  if (comparison.is_regression)
    return fmt::format("slower by {:.1f} %, more than the {:.1f} % that are allowed",
                       percent,
                       comparison.gate_percent);
  if (comparison.has_interval && comparison.low > 1)
    return fmt::format("{:.2f} times as fast ({:.2f} to {:.2f})",
                       comparison.speedup,
                       comparison.low,
                       comparison.high);
  if (!comparison.has_interval)
    return fmt::format("{:.2f} times as fast, by too few steps to be sure", comparison.speedup);
  if (comparison.high < 1)
    return fmt::format("slower by {:.1f} %, within the {:.1f} % that are allowed",
                       percent,
                       comparison.gate_percent);
  return fmt::format(
      "no difference is certain: {:.2f} to {:.2f} times as fast", comparison.low, comparison.high);
}

std::string comparison_text(const Comparison& comparison) {
  std::string text = plain_line(comparison_verdict(comparison)) + "\n";
  for (const auto& [label, file, ms] :
       {std::tuple("before", &comparison.before, comparison.before_ms),
        std::tuple("after", &comparison.after, comparison.after_ms)})
    text += fmt::format("  {:<7} {:>10.3f} ms a step  {}\n", label, ms, plain_line(*file));
  text += rows_text("part of the mean step, ms", comparison.parts);
  if (!comparison.names.empty()) text += rows_text("changed most, ms a step", comparison.names);
  for (const auto& [label, findings] :
       {std::pair("gone", &comparison.gone), std::pair("new", &comparison.appeared)})
    for (const std::string& finding : *findings)
      text += fmt::format(
          "{}  {:<5} {}\n", &finding == &findings->front() ? "\n" : "", label, plain_line(finding));
  return text;
}

}  // namespace ridge::doctor
