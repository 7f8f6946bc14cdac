#include "ridge/base/html/html_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"

namespace ridge {
namespace {

// Colours are named once and change with the theme; the charts use the same names (svg_writer.h).
constexpr std::string_view kColours = R"css(
:root { color-scheme: light dark; --page: #ffffff; --panel: #f6f7f9; --text: #1f2328;
  --muted: #656d76; --grid: #e3e6ea; --band: #c9dcf0; --good: #2a8460; --warning: #a86a12;
  --bad: #c2413b; --series-1: #2f6fb2; --series-2: #d47a1f; --series-3: #2f8f68;
  --series-4: #b24a74; --series-5: #7a5fb5; --series-6: #2797a8; --series-7: #9a7f1c;
  --series-8: #70767d; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --panel: #1c2025; --text: #e4e7eb; --muted: #98a1ab; --grid: #2d333a;
    --band: #2c4763; --good: #4fb78b; --warning: #d9a441; --bad: #e5736d; --series-1: #6aa3dd;
    --series-2: #e69a4c; --series-3: #4fb78b; --series-4: #d47a9f; --series-5: #a48fdb;
    --series-6: #4fbccb; --series-7: #c7ac4b; --series-8: #9aa1a9; } }
)css";

constexpr std::string_view kText = R"css(
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1480px; margin: 0 auto; padding: 40px 32px 72px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 40px 0 10px; padding-top: 18px; border-top: 1px solid var(--grid); }
h3 { font-size: 15px; margin: 26px 0 6px; max-width: 100ch; }
p { margin: 8px 0; max-width: 84ch; }
ul { margin: 8px 0; padding-left: 22px; max-width: 84ch; }
.subtitle { color: var(--muted); margin-top: 6px; }
pre { background: var(--panel); border-radius: 6px; padding: 12px 14px; white-space: pre-wrap;
  font: 13px/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; margin: 12px 0; }
.callout { background: var(--panel); border-left: 3px solid var(--muted); padding: 10px 16px;
  margin: 14px 0; border-radius: 0 6px 6px 0; }
.callout b { display: block; }
.callout p { margin: 2px 0; }
.good { border-left-color: var(--good); } .good > b { color: var(--good); }
.warning { border-left-color: var(--warning); } .warning > b { color: var(--warning); }
.bad { border-left-color: var(--bad); } .bad > b { color: var(--bad); }
.keys { display: flex; flex-wrap: wrap; gap: 14px 40px; margin: 22px 0; }
.keys > div { min-width: 0; }
.keys b { display: block; font-size: 25px; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
.keys span { color: var(--muted); font-size: 13px; }
details { margin: 12px 0; border: 1px solid var(--grid); border-radius: 6px; padding: 0 16px; }
summary { cursor: pointer; padding: 9px 0; font-weight: 500; }
@media (max-width: 640px) { main { padding: 24px 16px 48px; } details { padding: 0 10px; } }
@media print { main { max-width: none; padding: 0; } figure, tr, .callout, .entry {
  break-inside: avoid; } }
)css";

// Short words of a table are never broken: its long texts take what room is left. On a phone the
// cells of a stacked row follow each other, long texts on lines of their own.
constexpr std::string_view kTables = R"css(
table { border-collapse: collapse; max-width: 100%; font-size: 14px; margin: 12px 0; }
th, td { text-align: left; padding: 6px 26px 6px 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
th { color: var(--muted); font-weight: 500; }
tbody tr:hover { background: var(--panel); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.s, th { overflow-wrap: normal; }
td.n { white-space: nowrap; }
th:last-child, td:last-child { padding-right: 4px; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 26px;
  margin: 14px 0; font-size: 14px; }
.facts dt { color: var(--muted); }
.facts dd { margin: 0; max-width: 110ch; }
@media (max-width: 640px) {
  table { width: 100%; }
  th, td { padding-right: 12px; }
  .facts { display: block; }
  .facts dd { margin-bottom: 8px; }
  .stack thead { display: none; }
  .stack, .stack tbody { display: block; }
  .stack tr { display: flex; flex-wrap: wrap; gap: 0 16px; padding: 7px 0;
    border-bottom: 1px solid var(--grid); }
  .stack td { border: 0; padding: 0; max-width: 100%; }
  .stack td:empty { display: none; }
  .stack td:not(.n):not(.s) { flex: 0 0 100%; }
  .stack td:not(.s):not(:first-child)::before { content: attr(data-label) " "; color: var(--muted); } }
)css";

// An entry on a phone: verdict and number, what it is, the picture, and the remark, line by line.
constexpr std::string_view kPictures = R"css(
figure { margin: 16px 0; }
figure.column { max-width: 760px; }
svg { display: block; font-family: inherit; }
svg text { paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; }
figcaption { color: var(--muted); font-size: 13px; margin-top: 6px; max-width: 100ch; }
.key { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; margin-top: 6px; }
.key b { font-weight: 500; color: var(--muted); }
.key span { display: flex; align-items: baseline; gap: 6px; }
.key i { flex: none; width: 11px; height: 11px; border-radius: 2px; }
.entries { list-style: none; margin: 12px 0; padding: 0; max-width: none; }
.entry { display: grid; gap: 2px 24px; padding: 10px 0; border-bottom: 1px solid var(--grid);
  grid-template-columns: 112px minmax(0, 5fr) 150px minmax(0, 6fr); align-items: start;
  grid-template-rows: auto 1fr;
  grid-template-areas: "verdict what value picture" ". remark value picture"; }
.entry > b { grid-area: verdict; }
.entry .what { grid-area: what; } .entry .value { grid-area: value; }
.entry .picture { grid-area: picture; } .entry .remark { grid-area: remark; margin: 0; }
.entry .what b, .entry .value b { display: block; font-weight: 600; }
.entry .value { font-variant-numeric: tabular-nums; }
.entry .what span, .entry .value span, .entry .remark { color: var(--muted); font-size: 13px; }
.entry .value span { display: block; white-space: pre-line; }
.axis { padding-bottom: 0; }
@media (max-width: 860px) {
  .entry { grid-template-columns: minmax(0, 1fr) auto; gap: 2px 12px;
    grid-template-areas: "verdict value" "what value" "picture picture" "remark remark"; }
  .entry .value { text-align: right; }
  .axis { grid-template-areas: "picture picture"; position: sticky; top: 0;
    background: var(--page); } }
)css";

constexpr std::string_view class_of(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return " good";
    case Tone::kWarning:
      return " warning";
    case Tone::kBad:
      return " bad";
    case Tone::kNeutral:
      break;
  }
  return "";
}

// A table of so many columns is still one on a phone.
constexpr size_t kNarrowColumns = 3;

// A cell of at most kShortText bytes, with no word longer than kShortWord bytes, is not broken into
// lines.
constexpr size_t kShortWord = 14, kShortText = 24;

size_t longest_word(std::string_view text) {
  size_t longest = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    longest = std::max(longest, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

// " class=..." for the cells of each column: numbers, short texts, or nothing for others.
std::vector<std::string_view> classes_of(const HtmlTable& table) {
  std::vector<std::string_view> classes;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const bool is_short = std::ranges::all_of(table.rows, [i](const auto& row) {
      return i < row.size() && row[i].size() <= kShortText && longest_word(row[i]) <= kShortWord;
    });
    classes.push_back(table.columns[i].numeric ? " class=\"n\"" : is_short ? " class=\"s\"" : "");
  }
  return classes;
}

std::string key_of(const PictureKey& key) {
  std::string text = "<div class=\"key\">";
  if (!key.title.empty()) text += fmt::format("<b>{}</b>", escape_markup(key.title));
  for (const PictureKey::Entry& entry : key.entries)
    text += fmt::format("<span><i style=\"background:{}\"></i>{}</span>",
                        escape_markup(entry.ink),
                        escape_markup(entry.text));
  return text + "</div>\n";
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
  body_ += fmt::format("<div class=\"callout{}\"><b>{}</b>", class_of(tone), escape_markup(title));
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
  const bool is_stacked = table.columns.size() > kNarrowColumns;
  const std::vector<std::string_view> classes = classes_of(table);
  body_ += is_stacked ? "<table class=\"stack\">\n<thead><tr>" : "<table>\n<thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i)
    body_ += fmt::format("<th{}>{}</th>", classes[i], escape_markup(table.columns[i].heading));
  body_ += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    check_internal(row.size() == table.columns.size(),
                   "[HtmlReport] a row of {} cells in a table of {} columns",
                   row.size(),
                   table.columns.size());
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      body_ += fmt::format("<td{}", classes[i]);
      if (is_stacked)
        body_ += fmt::format(" data-label=\"{}\"", escape_markup(table.columns[i].heading));
      body_ += fmt::format(">{}</td>", escape_markup(row[i]));
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table>\n";
}

void HtmlReport::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<dl class=\"facts\">\n";
  for (const auto& [name, text] : facts)
    body_ += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_markup(name), escape_markup(text));
  body_ += "</dl>\n";
}

void HtmlReport::entries(std::string_view axis, const std::vector<HtmlEntry>& entries) {
  body_ += "<ul class=\"entries\">\n";
  if (!axis.empty())
    body_ += fmt::format("<li class=\"entry axis\"><div class=\"picture\">{}</div></li>\n", axis);
  for (const HtmlEntry& entry : entries) {
    body_ += fmt::format(
        "<li class=\"entry{}\"><b>{}</b><div class=\"what\"><b>{}</b><span>{}</span></div>",
        class_of(entry.tone),
        escape_markup(entry.verdict),
        escape_markup(entry.title),
        escape_markup(entry.text));
    body_ += fmt::format("<div class=\"value\"><b>{}</b><span>{}</span></div>",
                         escape_markup(entry.value),
                         escape_markup(entry.detail));
    if (!entry.svg.empty()) body_ += fmt::format("<div class=\"picture\">{}</div>", entry.svg);
    if (!entry.remark.empty())
      body_ += fmt::format("<p class=\"remark\">{}</p>", escape_markup(entry.remark));
    body_ += "</li>\n";
  }
  body_ += "</ul>\n";
}

void HtmlReport::code(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", escape_markup(text));
}

void HtmlReport::figure(const Picture& picture, std::string_view caption, FigureWidth width) {
  body_ += fmt::format(
      "<figure{}>{}", width == FigureWidth::kColumn ? " class=\"column\"" : "", picture.svg);
  for (const PictureKey& key : picture.keys) body_ += key_of(key);
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
      "<title>{}</title>\n<style>{}{}{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
      "html>\n",
      title_,
      kColours,
      kText,
      kTables,
      kPictures,
      body_);
}

}  // namespace ridge
