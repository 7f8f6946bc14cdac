#include "ridge/base/html_writer.h"

#include <fmt/format.h>

#include "ridge/base/error.h"
#include "ridge/base/markup.h"

namespace ridge {
namespace {

// Colours are named once and change with the theme; the charts use the same names (svg_writer.h).
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --page: #ffffff; --panel: #f6f7f9; --text: #1f2328;
  --muted: #656d76; --grid: #e3e6ea; --good: #2f8f68; --warning: #b7791f; --bad: #c2413b;
  --series-1: #2f6fb2; --series-2: #d47a1f; --series-3: #2f8f68; --series-4: #b24a74;
  --series-5: #7a5fb5; --series-6: #2797a8; --series-7: #9a7f1c; --series-8: #70767d; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --panel: #1c2025; --text: #e4e7eb; --muted: #98a1ab; --grid: #2d333a;
    --good: #4fb78b; --warning: #d9a441; --bad: #e5736d;
    --series-1: #6aa3dd; --series-2: #e69a4c; --series-3: #4fb78b; --series-4: #d47a9f;
    --series-5: #a48fdb; --series-6: #4fbccb; --series-7: #c7ac4b; --series-8: #9aa1a9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 40px 24px 72px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 40px 0 10px; padding-top: 18px; border-top: 1px solid var(--grid); }
h3 { font-size: 15px; margin: 26px 0 6px; }
h1, h2, h3, p, li, b, span, summary, figcaption { overflow-wrap: anywhere; }
p { margin: 8px 0; max-width: 72ch; }
ul { margin: 8px 0; padding-left: 22px; max-width: 72ch; }
.subtitle { color: var(--muted); margin-top: 6px; }
.scroll { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 22px 6px 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
th { color: var(--muted); font-weight: 500; white-space: nowrap; }
tbody tr:hover { background: var(--panel); }
td { max-width: 40ch; overflow-wrap: break-word; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 4px; }
pre { background: var(--panel); border-radius: 6px; padding: 12px 14px; overflow-x: auto;
  font: 13px/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; margin: 12px 0; }
.callout { background: var(--panel); border-left: 3px solid var(--muted); padding: 10px 16px;
  margin: 14px 0; border-radius: 0 6px 6px 0; }
.callout b { display: block; }
.callout p { margin: 2px 0; }
.good { border-left-color: var(--good); } .good b { color: var(--good); }
.warning { border-left-color: var(--warning); } .warning b { color: var(--warning); }
.bad { border-left-color: var(--bad); } .bad b { color: var(--bad); }
.keys { display: flex; flex-wrap: wrap; gap: 14px 40px; margin: 22px 0; }
.keys > div { min-width: 0; }
.keys b { display: block; font-size: 25px; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
.keys span { color: var(--muted); font-size: 13px; }
figure { margin: 16px 0; overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--muted); font-size: 13px; margin-top: 4px; }
details { margin: 12px 0; border: 1px solid var(--grid); border-radius: 6px; padding: 0 16px; }
summary { cursor: pointer; padding: 9px 0; font-weight: 500; }
@media print { main { max-width: none; padding: 0; } figure, tr, .callout { break-inside: avoid; } }
)css";

constexpr std::string_view class_of(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "callout good";
    case Tone::kWarning:
      return "callout warning";
    case Tone::kBad:
      return "callout bad";
    case Tone::kNeutral:
      break;
  }
  return "callout";
}

}  // namespace

HtmlReport::HtmlReport(std::string_view title, std::string_view subtitle)
    : title_(escape_markup(title)) {
  body_ = fmt::format("<h1>{}</h1>\n", title_);
  if (!subtitle.empty())
    body_ += fmt::format("<p class=\"subtitle\">{}</p>\n", escape_markup(subtitle));
}

void HtmlReport::heading(int level, std::string_view text) {
  check_internal(level == 2 || level == 3, "[HtmlReport] heading of level {}", level);
  body_ += fmt::format("<h{0}>{1}</h{0}>\n", level, escape_markup(text));
}

void HtmlReport::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", escape_markup(text));
}

void HtmlReport::list(const std::vector<std::string>& items) {
  body_ += "<ul>\n";
  for (const std::string& item : items) body_ += fmt::format("<li>{}</li>\n", escape_markup(item));
  body_ += "</ul>\n";
}

void HtmlReport::callout(Tone tone, std::string_view title, std::string_view text) {
  body_ += fmt::format("<div class=\"{}\"><b>{}</b>", class_of(tone), escape_markup(title));
  if (!text.empty()) body_ += fmt::format("<p>{}</p>", escape_markup(text));
  body_ += "</div>\n";
}

void HtmlReport::key_figures(const std::vector<Figure>& figures) {
  body_ += "<div class=\"keys\">\n";
  for (const Figure& figure : figures)
    body_ += fmt::format("<div><b>{}</b><span>{}</span></div>\n",
                         escape_markup(figure.value),
                         escape_markup(figure.caption));
  body_ += "</div>\n";
}

void HtmlReport::table(const HtmlTable& table) {
  const auto cell = [&](const char* tag, size_t column, std::string_view text) {
    body_ += fmt::format("<{0}{1}>{2}</{0}>",
                         tag,
                         table.columns[column].numeric ? " class=\"n\"" : "",
                         escape_markup(text));
  };
  body_ += "<div class=\"scroll\"><table>\n<thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) cell("th", i, table.columns[i].heading);
  body_ += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    check_internal(row.size() == table.columns.size(),
                   "[HtmlReport] a row of {} cells in a table of {} columns",
                   row.size(),
                   table.columns.size());
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) cell("td", i, row[i]);
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void HtmlReport::code(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", escape_markup(text));
}

void HtmlReport::figure(std::string_view svg, std::string_view caption) {
  body_ += fmt::format("<figure>{}", svg);
  if (!caption.empty()) body_ += fmt::format("<figcaption>{}</figcaption>", escape_markup(caption));
  body_ += "</figure>\n";
}

void HtmlReport::begin_details(std::string_view summary) {
  ++details_;
  body_ += fmt::format("<details><summary>{}</summary>\n", escape_markup(summary));
}

void HtmlReport::end_details() {
  check_internal(details_ > 0, "[HtmlReport] end_details without begin_details");
  --details_;
  body_ += "</details>\n";
}

std::string HtmlReport::finish() {
  check_internal(details_ == 0, "[HtmlReport] {} details left open", details_);
  // The policy makes browsers refuse whatever a mistake of ours might let in.
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
      "html>\n",
      title_,
      kStyle,
      body_);
}

}  // namespace ridge
