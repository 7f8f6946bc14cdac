#include "ridge/doctor/report/compare_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/base/html/markup.h"
#include "ridge/base/stats.h"
#include "ridge/doctor/report/html_parts.h"
#include "ridge/doctor/report/pictures.h"
#include "ridge/doctor/report/text.h"

namespace ridge::doctor {
namespace {

std::string ms_text(double ms) { return fmt::format("{:.3f}", ms); }

void add_verdict(HtmlReport& page, const Comparison& comparison) {
  const Tone tone = comparison.is_regression                         ? Tone::kBad
                    : comparison.has_interval && comparison.low > 1  ? Tone::kGood
                    : comparison.has_interval && comparison.high < 1 ? Tone::kWarning
                                                                     : Tone::kNeutral;
  page.callout(
      tone,
      comparison_verdict(comparison),
      fmt::format("A step that takes more than {:.1f} % longer (--gate), and surely so where "
                  "there are steps enough to tell, is a regression.",
                  comparison.gate_percent));
  page.key_figures(
      {{fmt::format("{:.2f} ms", comparison.before_ms), "a step before (median)"},
       {fmt::format("{:.2f} ms", comparison.after_ms), "a step after"},
       {fmt::format("{:.2f}x", comparison.speedup),
        comparison.has_interval ? fmt::format("times as fast ({:.2f} to {:.2f} by 95 % intervals)",
                                              comparison.low,
                                              comparison.high)
                                : std::string("times as fast, by too few steps to be sure")}});
}

void add_steps(HtmlReport& page, const Comparison& comparison) {
  page.heading(2, "Steps");
  HtmlTable table{{{""},
                   {"steady steps", true},
                   {"median ms", true},
                   {"95 % interval", true},
                   {"least ms", true},
                   {"most ms", true},
                   {"file"}},
                  {}};
  for (const auto& [title, file, steps] :
       {std::tuple("before", &comparison.before, &comparison.before_steps_ms),
        std::tuple("after", &comparison.after, &comparison.after_steps_ms)}) {
    const auto interval = median_interval(*steps, 0.95);
    const auto [least, most] = std::minmax_element(steps->begin(), steps->end());
    table.rows.push_back(
        {title,
         fmt::format("{}", steps->size()),
         ms_text(median(*steps)),
         interval ? fmt::format("{:.3f} to {:.3f}", interval->low, interval->high) : "-",
         ms_text(*least),
         ms_text(*most),
         shortened(*file, kNameLength)});
  }
  page.table(table);
  page.figure(steps_picture(comparison), "How long each steady step takes, in their order.");
}

void add_rows(HtmlReport& page, std::string_view what, const std::vector<ComparedRow>& rows) {
  HtmlTable table{
      {{std::string(what)}, {"before ms", true}, {"after ms", true}, {"change ms", true}}, {}};
  for (const ComparedRow& row : rows)
    table.rows.push_back({shortened(row.name, kNameLength),
                          ms_text(row.before_ms),
                          ms_text(row.after_ms),
                          fmt::format("{:+.3f}", row.after_ms - row.before_ms)});
  page.table(table);
}

void add_parts(HtmlReport& page,
               const Comparison& comparison,
               const Examination& before,
               const Examination& after) {
  page.heading(2, "Where a step goes");
  if (const Picture picture = parts_picture(comparison); !picture.empty())
    page.figure(
        picture, "The mean step, on one scale: its parts do not overlap.", FigureWidth::kPage);
  add_rows(page, "part", comparison.parts);
  page.begin_details("One step of median length before, and one after");
  for (const auto& [title, each] : {std::pair("Before", &before), std::pair("After", &after)})
    if (const Picture picture = step_picture(each->trace, each->analysis); !picture.empty())
      page.figure(picture, title, FigureWidth::kPage);
  page.end_details();
}

struct RuleCosts {
  std::string title;
  double before_ms = 0, after_ms = 0;  // a step
  bool was = false, is = false;
};

// Findings that are worth fixing, by their rule.
std::map<std::string_view, RuleCosts> costs_of(const Examination& before,
                                               const Examination& after) {
  std::map<std::string_view, RuleCosts> rules;
  const auto add = [&rules](const Diagnosis& diagnosis, auto ms, auto has) {
    for (const Finding& finding : diagnosis.findings) {
      if (!is_worth_fixing(finding)) continue;
      RuleCosts& rule = rules[finding.rule];
      rule.title = finding.title;
      rule.*ms += finding.cost_ms;
      rule.*has = true;
    }
  };
  add(before.diagnosis, &RuleCosts::before_ms, &RuleCosts::was);
  add(after.diagnosis, &RuleCosts::after_ms, &RuleCosts::is);
  return rules;
}

void add_findings(HtmlReport& page, const Examination& before, const Examination& after) {
  page.heading(2, "Findings");
  const std::map<std::string_view, RuleCosts> rules = costs_of(before, after);
  if (rules.empty()) page.paragraph("Neither before nor after is there one that is worth fixing.");
  if (rules.empty()) return;
  HtmlTable table{{{""}, {"before ms", true}, {"after ms", true}, {"finding"}}, {}};
  for (const auto& [id, rule] : rules)
    table.rows.push_back({rule.was && rule.is ? "still there"
                          : rule.is           ? "new"
                                              : "gone",
                          rule.was ? ms_text(rule.before_ms) : "-",
                          rule.is ? ms_text(rule.after_ms) : "-",
                          shortened(fmt::format("{} {}", id, rule.title), kTextLength)});
  page.table(table);
}

void add_what_is_left(HtmlReport& page, const Diagnosis& after) {
  if (!has_findings(after)) return;
  page.heading(2, "What is left to fix");
  size_t number = 0;
  for (const Finding& finding : after.findings)
    if (is_worth_fixing(finding) && ++number <= kShownFindings) add_finding(page, number, finding);
}

}  // namespace

std::string comparison_html(const Comparison& comparison,
                            const Examination& before,
                            const Examination& after) {
  HtmlReport page("ridge doctor: before and after",
                  fmt::format("{} and {}",
                              shortened(comparison.before, kNameLength),
                              shortened(comparison.after, kNameLength)));
  add_verdict(page, comparison);
  add_steps(page, comparison);
  add_parts(page, comparison, before, after);
  add_findings(page, before, after);
  if (!comparison.names.empty()) {
    page.heading(2, "What changed most");
    add_rows(page, "a step, by name", comparison.names);
  }
  add_what_is_left(page, after.diagnosis);
  return page.finish();
}

}  // namespace ridge::doctor
