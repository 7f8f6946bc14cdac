#include "ridge/doctor/report/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "ridge/base/html/charts.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/html/svg_writer.h"

namespace ridge::doctor {
namespace {

constexpr double kBar = 18, kFont = 13, kTitle = 20, kBelow = 8;
constexpr double kRow = kTitle + kBar + kBelow;
constexpr double kPieces = 1000;          // of a row, at most
constexpr double kLeast = 100 / kPieces;  // per cent that a piece takes, and that part two pieces
// The colours of the longest names of a row: a key of more is not read, and the causes of gaps have
// the others.
constexpr size_t kNameSeries[] = {0, 2, 3, 5, 6};
constexpr size_t kColours = std::size(kNameSeries);

// Colours of compute and of each cause of idle time, the same in all pictures.
std::string_view part_ink(std::string_view part) {
  if (part == "starved") return ink::series(1);
  if (part == "launch") return ink::series(4);
  if (part == "blocking") return ink::kBad;
  return part == "unknown" ? ink::series(7) : ink::series(0);
}

// A row of the picture: stretches of several colours.
struct Colour {
  std::string name;
  std::string_view ink;
  std::vector<Interval> stretches{};
  int64_t time = 0;
};
struct Row {
  std::string title;
  std::vector<Colour> colours{};
};

Interval median_step(const Analysis& analysis) {
  const std::vector<Interval>& windows = analysis.steps.windows;
  const auto far = [&](const Interval& window) {
    return std::abs(static_cast<double>(window.length()) / 1e6 - analysis.step_ms_median);
  };
  return *std::min_element(windows.begin(),
                           windows.end(),
                           [&](const Interval& a, const Interval& b) { return far(a) < far(b); });
}

// By name, the longest with colours of their own and the others in one.
Row row_by_name(std::string title, const Trace& trace, const std::vector<size_t>& rows) {
  std::map<std::string_view, Colour> by_name;
  for (size_t row : rows) {
    Colour& colour = by_name[trace.name_text(row)];
    colour.stretches.push_back({trace.start_ns[row], trace.end_ns(row)});
    colour.time += trace.duration_ns[row];
  }
  std::vector<Colour> colours;
  for (auto& [name, colour] : by_name) {
    colour.name = shortened(name, 60);
    colours.push_back(std::move(colour));
  }
  std::stable_sort(colours.begin(), colours.end(), [](const Colour& a, const Colour& b) {
    return a.time > b.time;
  });
  const size_t names = colours.size();
  while (colours.size() > kColours + 1) {
    Colour& rest = colours[kColours];
    const Colour& last = colours.back();
    rest.stretches.insert(rest.stretches.end(), last.stretches.begin(), last.stretches.end());
    rest.time += last.time;
    rest.name = fmt::format("{} others", names - kColours);
    colours.pop_back();
  }
  for (size_t i = 0; i < colours.size(); ++i)
    colours[i].ink = i == kColours ? ink::kBand : ink::series(kNameSeries[i]);
  return {std::move(title), std::move(colours)};
}

Row row_of_gaps(const Analysis& analysis, Interval step) {
  Row row{"nothing computes",
          {{"starved", part_ink("starved")},
           {"launch", part_ink("launch")},
           {"blocking", part_ink("blocking")},
           {"unknown", part_ink("unknown")}}};
  for (const Gap& gap : analysis.gaps) {
    if (gap.at.begin < step.begin || gap.at.begin >= step.end) continue;
    int64_t at = gap.at.begin;
    const int64_t lengths[] = {gap.starved_ns, gap.blocking_ns, gap.launch_ns, gap.unknown_ns};
    constexpr size_t kColourOf[] = {0, 2, 1, 3};
    for (size_t i = 0; i < 4; ++i) {
      if (lengths[i] == 0) continue;
      Colour& colour = row.colours[kColourOf[i]];
      colour.stretches.push_back({at, at + lengths[i]});
      colour.time += lengths[i];
      at += lengths[i];
    }
  }
  return row;
}

std::vector<Row> rows_of(const Trace& trace, const Analysis& analysis, Interval step) {
  std::vector<size_t> compute, communication, copies, calls, operators;
  for (size_t row = 0; row < trace.size() && trace.start_ns[row] < step.end; ++row) {
    if (trace.end_ns(row) <= step.begin) continue;
    const EventKind kind = trace.kind[row];
    const bool is_device = trace.lane_of(row).device == analysis.device && analysis.device >= 0;
    if (is_device && kind == EventKind::kKernel)
      (is_communication(trace.name_text(row)) ? communication : compute).push_back(row);
    else if (is_device && is_device_work(kind))
      copies.push_back(row);
    else if (kind == EventKind::kRuntime && trace.lane[row] == analysis.launching_lane)
      calls.push_back(row);
    else if (kind == EventKind::kOperator && analysis.is_cpu_only)
      operators.push_back(row);
  }
  std::vector<Row> rows;
  if (!analysis.is_cpu_only) rows.push_back(row_by_name("kernels that compute", trace, compute));
  if (analysis.is_cpu_only) rows.push_back(row_by_name("operators", trace, operators));
  rows.push_back(row_of_gaps(analysis, step));
  if (!communication.empty()) rows.push_back(row_by_name("communication", trace, communication));
  if (!copies.empty()) rows.push_back(row_by_name("copies and sets", trace, copies));
  if (!calls.empty())
    rows.push_back(row_by_name("calls of the thread that launches", trace, calls));
  return rows;
}

// Pieces that are closer than can be drawn become one.
Intervals drawn_pieces(std::vector<Interval> stretches, Interval step) {
  const Intervals exact = clipped(union_of(std::move(stretches)), step);
  const double least = static_cast<double>(step.length()) / kPieces;
  Intervals pieces;
  for (const Interval& each : exact)
    if (!pieces.empty() && static_cast<double>(each.begin - pieces.back().end) < least)
      pieces.back().end = each.end;
    else
      pieces.push_back(each);
  return pieces;
}

std::string ms_text(int64_t ns) { return readable_number(static_cast<double>(ns) / 1e6) + " ms"; }

void draw_row(SvgWriter& svg, const Row& row, Interval step, double y) {
  const double ns_per_cent = static_cast<double>(step.length()) / 100;
  svg.text({0, y + kFont}, row.title, {.size = kFont, .ink = ink::kMuted});
  for (const Colour& colour : row.colours) {
    for (const Interval& piece : drawn_pieces(colour.stretches, step)) {
      const double left = static_cast<double>(piece.begin - step.begin) / ns_per_cent;
      const double width = std::max(kLeast, static_cast<double>(piece.length()) / ns_per_cent);
      svg.begin_group(fmt::format("{}: {}", colour.name, ms_text(piece.length())));
      svg.rect(left, y + kTitle, std::min(width, 100 - left), kBar, colour.ink);
      svg.end_group();
    }
  }
}

// Each colour of a row with its time in the step; what took none has no place in the picture.
PictureKey key_of(const Row& row) {
  PictureKey key{.title = row.title, .entries = {}};
  for (const Colour& colour : row.colours)
    if (colour.time > 0)
      key.entries.push_back({colour.ink, fmt::format("{} {}", colour.name, ms_text(colour.time))});
  return key;
}

}  // namespace

Picture step_picture(const Trace& trace, const Analysis& analysis) {
  if (analysis.steps.windows.empty()) return {};
  const Interval step = median_step(analysis);
  if (step.length() == 0) return {};
  const std::vector<Row> rows = rows_of(trace, analysis, step);
  const double height = static_cast<double>(rows.size()) * kRow;
  SvgWriter svg(height + kFont + 6, "what ran in a step of median length");
  const double step_ms = static_cast<double>(step.length()) / 1e6;
  for (double tick : linear_ticks(0, step_ms, 4)) {
    const double x = 100 * tick / step_ms;
    svg.line({x, 0}, {x, height}, ink::kGrid);
    draw_tick(svg, x, height + kFont, readable_number(tick) + " ms");
  }
  Picture picture;
  for (size_t i = 0; i < rows.size(); ++i) {
    draw_row(svg, rows[i], step, static_cast<double>(i) * kRow);
    if (PictureKey key = key_of(rows[i]); !key.entries.empty())
      picture.keys.push_back(std::move(key));
  }
  picture.svg = svg.finish();
  return picture;
}

Picture parts_picture(const Comparison& comparison) {
  const std::vector<ComparedRow>& parts = comparison.parts;
  double before = 0, after = 0;
  for (const ComparedRow& part : parts) before += part.before_ms, after += part.after_ms;
  const double ms_per_cent = std::max(before, after) / 100;
  if (!(ms_per_cent > 0)) return {};
  SvgWriter svg(2 * kRow, "where the mean step goes, before and after");
  const auto draw = [&](std::string_view title, double whole, double y, auto ms_of) {
    svg.text({0, y + kFont},
             fmt::format("{}: {} ms", title, readable_number(whole)),
             {.size = kFont, .ink = ink::kMuted});
    double left = 0;
    for (const ComparedRow& part : parts) {
      const double width = ms_of(part) / ms_per_cent;
      svg.begin_group(fmt::format("{}: {} ms", part.name, readable_number(ms_of(part))));
      svg.rect(left, y + kTitle, width, kBar, part_ink(part.name));
      svg.end_group();
      left += width;
    }
  };
  draw("before", before, 0, [](const ComparedRow& part) { return part.before_ms; });
  draw("after", after, kRow, [](const ComparedRow& part) { return part.after_ms; });
  PictureKey key;
  for (const ComparedRow& part : parts) key.entries.push_back({part_ink(part.name), part.name});
  return {.svg = svg.finish(), .keys = {std::move(key)}};
}

Picture steps_picture(const Comparison& comparison) {
  const auto series_of = [](std::string name, const std::vector<double>& ms) {
    PlotSeries series{.name = std::move(name), .x = {}, .y = ms};
    for (size_t i = 0; i < ms.size(); ++i) series.x.push_back(static_cast<double>(i + 1));
    return series;
  };
  return line_plot({.title = "time of each steady step",
                    .x_label = "steady step",
                    .y_label = "ms",
                    .series = {series_of("before", comparison.before_steps_ms),
                               series_of("after", comparison.after_steps_ms)},
                    .height = 240});
}

Picture gain_picture(const Diagnosis& diagnosis) {
  BarChart chart{.title = "gain by finding", .unit = "%"};
  const auto percent = [](double factor) { return 100 * (factor - 1); };
  for (const Finding& finding : diagnosis.findings) {
    if (!(finding.ceiling > 1) || gains_nothing(finding)) continue;
    const Gain& gain = finding.predicted;
    chart.bars.push_back({.label = fmt::format("{} {}", finding.rule, finding.title),
                          .value = percent((gain.low + gain.high) / 2),
                          .text = fmt::format("{:.2f} to {:.2f} x", gain.low, gain.high),
                          .tooltip = shortened(finding.title, 100),
                          .interval = {{percent(gain.low), percent(gain.high)}}});
  }
  return chart.bars.empty() ? Picture() : bar_chart(chart);
}

}  // namespace ridge::doctor
