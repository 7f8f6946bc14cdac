#include "ridge/doctor/report/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/html/html_writer.h"
#include "ridge/base/html/markup.h"
#include "ridge/doctor/report/html_parts.h"
#include "ridge/doctor/report/pictures.h"

namespace ridge::doctor {
namespace {

constexpr size_t kMostRows = 40;

void add_head(HtmlReport& page, const Examination& examination) {
  const Analysis& analysis = examination.analysis;
  Severity worst = Severity::kInfo;
  for (const Finding& finding : examination.diagnosis.findings)
    if (!gains_nothing(finding)) worst = std::max(worst, finding.severity);
  const bool is_fine = worst == Severity::kInfo && ceiling_without_gaps(analysis) < kNearlyOne;
  page.callout(is_fine ? Tone::kGood : tone_of(worst),
               shortened(verdict_text(examination), kTextLength),
               {});
  if (analysis.steps.windows.empty()) return;
  page.key_figures(
      {{fmt::format("{:.2f} ms", analysis.step_ms_median),
        fmt::format("a step (median of {})", analysis.steps.windows.size())},
       {percent_text(
            analysis.breakdown.wall > 0 ? analysis.breakdown.compute / analysis.breakdown.wall : 0),
        analysis.is_cpu_only ? "of it in operators" : "of it computing"},
       {fmt::format("{:.2f}x", ceiling_without_gaps(analysis)), "at most, without gaps"}});
}

void add_breakdown(HtmlReport& page, const Examination& examination) {
  const Analysis& analysis = examination.analysis;
  const Breakdown& mean = analysis.breakdown;
  if (!(mean.wall > 0)) return;
  page.heading(2, "Where a step goes");
  if (analysis.unprofiled)
    page.paragraph(unprofiled_text(analysis) +
                   ". Times are theirs, divided as the profiled steps are.");
  HtmlTable table{{{"part"}, {"ms", true}, {"share", true}, {"of which"}}, {}};
  for (const StepPart& part : parts_of_step(analysis))
    table.rows.push_back({std::string(part.name),
                          fmt::format("{:.3f}", part.ms),
                          percent_text(part.ms / mean.wall),
                          part.detail});
  table.rows.push_back({"the mean step", fmt::format("{:.3f}", mean.wall), percent_text(1), ""});
  page.table(table);
  if (!analysis.is_cpu_only)
    page.paragraph(fmt::format(
        "Beside that, and overlapping it: the device is busy {:.3f} ms, copies {:.3f} ms and "
        "communicates {:.3f} ms.",
        mean.busy,
        mean.copy,
        mean.communication));
  if (const Picture picture = step_picture(examination.trace, analysis); !picture.empty())
    page.figure(picture,
                "One step of median length, with the time of each colour below. Pieces that are "
                "too close to be told apart are drawn as one.",
                FigureWidth::kPage);
}

void add_findings(HtmlReport& page, const Diagnosis& diagnosis) {
  if (diagnosis.findings.empty()) return;
  page.heading(2, "Findings");
  if (const Picture picture = gain_picture(diagnosis); !picture.empty())
    page.figure(picture,
                "How many times as fast a step is predicted to be with each fix alone. Gains do "
                "not add up.");
  size_t number = 0;
  const auto add_those = [&](bool are_folded) {
    for (const Finding& finding : diagnosis.findings)
      if (gains_nothing(finding) == are_folded && ++number <= kMostListed)
        add_finding(page, number, finding);
  };
  add_those(false);
  const auto folded = std::ranges::count_if(diagnosis.findings, gains_nothing);
  if (folded == 0) return;
  page.begin_details(fmt::format("Findings that are expected to gain nothing ({})", folded));
  add_those(true);
  page.end_details();
}

void add_not_fired(HtmlReport& page, const Diagnosis& diagnosis) {
  if (diagnosis.not_fired.empty()) return;
  page.begin_details("What was looked for and not seen");
  HtmlTable table{{{"rule"}, {"why not"}}, {}};
  for (const NotFired& row : diagnosis.not_fired)
    if (table.rows.size() < kMostListed)
      table.rows.push_back({std::string(row.rule), shortened(row.reason, kTextLength)});
  page.table(table);
  page.end_details();
}

void add_names(HtmlReport& page, const Examination& examination) {
  const Analysis& analysis = examination.analysis;
  const std::vector<NameRow> rows = rows_by_name(examination.trace, analysis, kMostRows);
  if (rows.empty()) return;
  page.heading(2, analysis.is_cpu_only ? "Operators" : "Kernels and copies");
  HtmlTable table{{{"name"}, {"ms a step", true}, {"share", true}, {"a step", true}}, {}};
  for (const NameRow& row : rows)
    table.rows.push_back({shortened(row.name, kNameLength),
                          fmt::format("{:.3f}", row.ms),
                          percent_text(row.share),
                          fmt::format("{:.1f}", row.count)});
  page.table(table);
}

void add_ranks(HtmlReport& page, const std::vector<RankRow>& ranks) {
  if (ranks.empty()) return;
  page.heading(2, "Ranks");
  HtmlTable table{{{"rank", true},
                   {"step ms", true},
                   {"compute ms", true},
                   {"communication ms", true},
                   {"file"}},
                  {}};
  for (const RankRow& row : ranks)
    if (table.rows.size() < kMostListed)
      table.rows.push_back({row.rank < 0 ? "-" : fmt::format("{}", row.rank),
                            fmt::format("{:.3f}", row.step_ms),
                            fmt::format("{:.3f}", row.compute_ms),
                            fmt::format("{:.3f}", row.communication_ms),
                            shortened(row.file, kNameLength)});
  page.table(table);
}

void add_warnings(HtmlReport& page, const Trace& trace) {
  if (trace.warnings.empty()) return;
  page.heading(2, "While it was read");
  std::vector<std::string> lines;
  for (const Warning& warning : trace.warnings)
    if (lines.size() < kMostListed)
      lines.push_back(fmt::format("{} ({})", shortened(warning.text, kTextLength), warning.count));
  page.list(lines);
}

}  // namespace

std::string doctor_html(const Examination& examination) {
  const auto& [trace, analysis, diagnosis, ranks] = examination;
  HtmlReport page(
      "ridge doctor: " + shortened(trace.source, kNameLength),
      fmt::format("{}; {} events{}",
                  shortened(steps_text(analysis.steps), kNameLength),
                  trace.size(),
                  trace.recorder.empty() ? "" : " by " + shortened(trace.recorder, kNameLength)));
  add_head(page, examination);
  add_breakdown(page, examination);
  add_findings(page, diagnosis);
  add_not_fired(page, diagnosis);
  add_ranks(page, ranks);
  add_names(page, examination);
  if (analysis.replay_error)
    page.paragraph(fmt::format("A replay of the trace as it is misses the measured step by {}.",
                               percent_text(*analysis.replay_error)));
  add_warnings(page, trace);
  return page.finish();
}

}  // namespace ridge::doctor
