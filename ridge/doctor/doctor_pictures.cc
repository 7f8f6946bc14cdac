#include "ridge/doctor/doctor_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "ridge/base/charts.h"
#include "ridge/base/markup.h"
#include "ridge/base/svg_writer.h"

namespace ridge::doctor {
namespace {

// Narrow, and with large letters: shrunk to a telephone's width they can still be read.
constexpr double kWidth = 600, kBar = 22, kFont = 16, kTitle = 24, kBelow = 8;
constexpr double kLeast = 1;  // pixels that a piece takes, and that part two pieces
constexpr size_t kColours = 7;
constexpr size_t kChartWidth = 420;

// A row of the picture: stretches of several colours.
struct Colour {
  std::string name;
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
  while (colours.size() > kColours + 1) {
    Colour& rest = colours[kColours];
    const Colour& last = colours.back();
    rest.stretches.insert(rest.stretches.end(), last.stretches.begin(), last.stretches.end());
    rest.time += last.time;
    rest.name = "others";
    colours.pop_back();
  }
  return {std::move(title), std::move(colours)};
}

Row row_of_gaps(const Analysis& analysis, Interval step) {
  Row row{"nothing computes", {{"starved"}, {"launch"}, {"blocking"}, {"unknown"}}};
  for (const Gap& gap : analysis.gaps) {
    if (gap.at.begin < step.begin || gap.at.begin >= step.end) continue;
    int64_t at = gap.at.begin;
    const int64_t lengths[] = {gap.starved_ns, gap.blocking_ns, gap.launch_ns, gap.unknown_ns};
    constexpr size_t kColourOf[] = {0, 2, 1, 3};
    for (size_t i = 0; i < 4; ++i) {
      if (lengths[i] == 0) continue;
      row.colours[kColourOf[i]].stretches.push_back({at, at + lengths[i]});
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

// Pieces that are closer than a pixel become one.
Intervals drawn_pieces(std::vector<Interval> stretches, Interval step, double ns_per_pixel) {
  const Intervals exact = clipped(union_of(std::move(stretches)), step);
  Intervals pieces;
  for (const Interval& each : exact)
    if (!pieces.empty() &&
        static_cast<double>(each.begin - pieces.back().end) < kLeast * ns_per_pixel)
      pieces.back().end = each.end;
    else
      pieces.push_back(each);
  return pieces;
}

void draw_row(SvgWriter& svg, const Row& row, Interval step, double y) {
  const double ns_per_pixel = static_cast<double>(step.length()) / kWidth;
  svg.text({0, y + kFont}, row.title, {.size = kFont, .ink = ink::kMuted});
  for (size_t i = 0; i < row.colours.size(); ++i) {
    const Colour& colour = row.colours[i];
    for (const Interval& piece : drawn_pieces(colour.stretches, step, ns_per_pixel)) {
      const double left = static_cast<double>(piece.begin - step.begin) / ns_per_pixel;
      const double width = std::max(kLeast, static_cast<double>(piece.length()) / ns_per_pixel);
      svg.begin_group(fmt::format(
          "{}: {} ms", colour.name, readable_number(static_cast<double>(piece.length()) / 1e6)));
      svg.rect(left, y + kTitle, std::min(width, kWidth - left), kBar, ink::series(i));
      svg.end_group();
    }
  }
}

}  // namespace

std::string step_picture(const Trace& trace, const Analysis& analysis) {
  if (analysis.steps.windows.empty()) return {};
  const Interval step = median_step(analysis);
  if (step.length() == 0) return {};
  const std::vector<Row> rows = rows_of(trace, analysis, step);
  const double height = static_cast<double>(rows.size()) * (kTitle + kBar + kBelow);
  SvgWriter svg(kWidth, height + kFont + 10, "what ran in a step of median length");
  const double step_ms = static_cast<double>(step.length()) / 1e6;
  for (double tick : linear_ticks(0, step_ms, 4)) {
    const double x = kWidth * tick / step_ms;
    svg.line({x, 0}, {x, height}, ink::kGrid);
    const TextAnchor anchor = x < 30            ? TextAnchor::kStart
                              : x > kWidth - 40 ? TextAnchor::kEnd
                                                : TextAnchor::kMiddle;
    svg.text({x, height + kFont + 2},
             readable_number(tick) + " ms",
             {.anchor = anchor, .size = kFont, .ink = ink::kMuted});
  }
  double y = 0;
  for (const Row& row : rows) {
    draw_row(svg, row, step, y);
    y += kTitle + kBar + kBelow;
  }
  return svg.finish();
}

std::string parts_picture(const Comparison& comparison) {
  const std::vector<ComparedRow>& parts = comparison.parts;
  double before = 0, after = 0;
  for (const ComparedRow& part : parts) before += part.before_ms, after += part.after_ms;
  const double ms_per_pixel = std::max(before, after) / kWidth;
  if (!(ms_per_pixel > 0)) return {};
  constexpr double kRow = kTitle + kBar + kBelow;
  SvgWriter svg(kWidth, 2 * kRow + kTitle, "where the mean step goes, before and after");
  const auto draw = [&](std::string_view title, double whole, double y, auto ms_of) {
    svg.text({0, y + kFont},
             fmt::format("{}: {} ms", title, readable_number(whole)),
             {.size = kFont, .ink = ink::kMuted});
    double left = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const double width = ms_of(parts[i]) / ms_per_pixel;
      svg.begin_group(fmt::format("{}: {} ms", parts[i].name, readable_number(ms_of(parts[i]))));
      svg.rect(left, y + kTitle, width, kBar, ink::series(i));
      svg.end_group();
      left += width;
    }
  };
  draw("before", before, 0, [](const ComparedRow& part) { return part.before_ms; });
  draw("after", after, kRow, [](const ComparedRow& part) { return part.after_ms; });
  double left = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    svg.rect(left, 2 * kRow + 4, kFont - 4, kFont - 4, ink::series(i));
    svg.text({left + kFont, 2 * kRow + kFont}, parts[i].name, {.size = kFont});
    left += 2 * kFont + estimated_width(parts[i].name, kFont);
  }
  return svg.finish();
}

std::string steps_picture(const Comparison& comparison) {
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
                    .width = kChartWidth,
                    .height = 240});
}

std::string gain_picture(const Diagnosis& diagnosis) {
  BarChart chart{.title = "gain by finding", .unit = "%", .width = kChartWidth};
  const auto percent = [](double factor) { return 100 * (factor - 1); };
  for (const Finding& finding : diagnosis.findings) {
    if (!(finding.ceiling > 1) || gains_nothing(finding)) continue;
    const Gain& gain = finding.predicted;
    chart.bars.push_back({.label = std::string(finding.rule),
                          .value = percent((gain.low + gain.high) / 2),
                          .text = fmt::format("{:.2f} to {:.2f} x", gain.low, gain.high),
                          .tooltip = shortened(finding.title, 100),
                          .interval = {{percent(gain.low), percent(gain.high)}}});
  }
  return chart.bars.empty() ? std::string() : bar_chart(chart);
}

}  // namespace ridge::doctor
