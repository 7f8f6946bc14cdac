#include "ridge/base/html/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/html/svg_writer.h"

namespace ridge {
namespace {

constexpr double kFont = 12;
constexpr int kTicks = 4;  // about so many on an axis: numbers side by side fit into a narrow page

// Maps values to per cents of the width, or to pixels of the height.
struct Axis {
  double low = 0, high = 1;  // already logarithms on a logarithmic axis
  double from = 0, to = 100;
  bool log = false;

  bool has(double v) const { return std::isfinite(v) && (!log || v > 0); }
  double at(double v) const {
    const double position = ((log ? std::log10(v) : v) - low) / (high - low);
    return from + position * (to - from);
  }
};

std::string text_of(const Bar& bar, const std::string& unit) {
  if (!bar.text.empty()) return bar.text;
  if (!std::isfinite(bar.value)) return "no value";
  return readable_number(bar.value) + (unit.empty() ? "" : " " + unit);
}

void draw_bar(SvgWriter& svg, const Bar& bar, const Axis& axis, double y) {
  constexpr double kHeight = 14;
  const double zero = axis.at(0);
  if (std::isfinite(bar.value)) {
    const double end = axis.at(bar.value);
    svg.rect(std::min(zero, end), y, std::fabs(end - zero), kHeight, ink::series(bar.series), 2);
  }
  if (!bar.interval || !axis.has(bar.interval->first) || !axis.has(bar.interval->second)) return;
  const double low = axis.at(bar.interval->first), high = axis.at(bar.interval->second);
  const double middle = y + kHeight / 2;
  svg.line({low, middle}, {high, middle}, ink::kText, 1.25);
  for (double end : {low, high}) svg.line({end, middle - 4}, {end, middle + 4}, ink::kText, 1.25);
}

// The least and greatest drawable values of all series along one coordinate.
Axis fit(const LinePlot& plot, bool along_x) {
  Axis axis;
  axis.log = along_x ? plot.log_x : plot.log_y;
  axis.low = std::numeric_limits<double>::infinity();
  axis.high = -axis.low;
  for (const PlotSeries& series : plot.series) {
    for (double v : along_x ? series.x : series.y) {
      if (!axis.has(v)) continue;
      const double position = axis.log ? std::log10(v) : v;
      axis.low = std::min(axis.low, position);
      axis.high = std::max(axis.high, position);
    }
  }
  if (axis.low > axis.high) axis.low = 0, axis.high = 1;
  if (axis.low == axis.high) {
    const double room = axis.low == 0 ? 1 : std::fabs(axis.low) * 0.1;
    axis.low -= room;
    axis.high += room;
  } else if (!along_x) {
    const double room = (axis.high - axis.low) * 0.06;
    axis.low -= !axis.log && axis.low >= 0 && axis.low < room ? axis.low : room;
    axis.high += room;
  }
  return axis;
}

std::vector<double> ticks_of(const Axis& axis) {
  if (!axis.log) return linear_ticks(axis.low, axis.high, kTicks);
  return log_ticks(std::pow(10.0, axis.low), std::pow(10.0, axis.high));
}

// The points of one unbroken stretch, at most a few for each column: the first, the least,
// the greatest and the last, in their order, keep the look of the line.
std::vector<SvgPoint> thinned(const std::vector<SvgPoint>& points) {
  if (points.size() < 2000) return points;
  const auto column = [](const SvgPoint& point) {
    return std::floor(point.x * kPlotColumns / 100);
  };
  std::vector<SvgPoint> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin + 1, least = begin, greatest = begin;
    while (end < points.size() && column(points[end]) == column(points[begin])) {
      if (points[end].y < points[least].y) least = end;
      if (points[end].y > points[greatest].y) greatest = end;
      ++end;
    }
    size_t picks[] = {begin, std::min(least, greatest), std::max(least, greatest), end - 1};
    for (size_t i = 0; i < std::size(picks); ++i)
      if (i == 0 || picks[i] != picks[i - 1]) kept.push_back(points[picks[i]]);
    begin = end;
  }
  return kept;
}

void draw_series(
    SvgWriter& svg, const PlotSeries& series, size_t index, const Axis& x, const Axis& y) {
  check_internal(series.x.size() == series.y.size(),
                 "[line_plot] series '{}' has {} values of x, {} of y",
                 series.name,
                 series.x.size(),
                 series.y.size());
  std::vector<SvgPoint> stretch;
  const auto flush = [&] {
    if (series.points_only || stretch.size() == 1)
      for (const SvgPoint& point : stretch) svg.circle(point, 2.5, ink::series(index));
    else
      svg.polyline(thinned(stretch), ink::series(index));
    stretch.clear();
  };
  svg.begin_group(series.name);
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (x.has(series.x[i]) && y.has(series.y[i]))
      stretch.push_back({x.at(series.x[i]), y.at(series.y[i])});
    else
      flush();
  }
  flush();
  svg.end_group();
}

void draw_grid(SvgWriter& svg, const Axis& x, const Axis& y) {
  for (double tick : ticks_of(y)) svg.line({x.from, y.at(tick)}, {x.to, y.at(tick)}, ink::kGrid);
  for (double tick : ticks_of(x))
    svg.line({x.at(tick), y.from}, {x.at(tick), y.from + 4}, ink::kMuted);
  svg.line({x.from, y.from}, {x.to, y.from}, ink::kMuted);
}

// Numbers of the vertical axis stand within the plot, above their lines: a narrow page has no room
// beside it.
void draw_labels(SvgWriter& svg, const LinePlot& plot, const Axis& x, const Axis& y) {
  for (double tick : ticks_of(y))
    svg.text({0, y.at(tick) - 3}, readable_number(tick), {.ink = ink::kMuted});
  for (double tick : ticks_of(x)) draw_tick(svg, x.at(tick), y.from + 18, readable_number(tick));
  svg.text({50, y.from + 38},
           fitted(plot.x_label, kFont, kNarrowPicture),
           {.anchor = TextAnchor::kMiddle, .ink = ink::kText});
  svg.text({0, kFont}, fitted(plot.y_label, kFont, kNarrowPicture), {.ink = ink::kText});
}

}  // namespace

void draw_tick(SvgWriter& svg, double x, double y, std::string_view text) {
  constexpr double kNearEdge = 8;
  const TextAnchor anchor = x < kNearEdge         ? TextAnchor::kStart
                            : x > 100 - kNearEdge ? TextAnchor::kEnd
                                                  : TextAnchor::kMiddle;
  svg.text({x, y}, text, {.anchor = anchor, .ink = ink::kMuted});
}

std::string readable_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double magnitude = std::fabs(value);
  if (magnitude != 0 && (magnitude < 1e-3 || magnitude >= 1e7)) return fmt::format("{:.4g}", value);
  const int whole = magnitude < 1 ? 1 : static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  std::string text = fmt::format("{:.{}f}", value, std::max(0, magnitude < 0.1 ? 6 : 4 - whole));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::vector<double> linear_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  const double rough = (high - low) / std::max(count, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return ticks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power * 10;
  for (double factor : {5.0, 2.0, 1.0})
    if (power * factor * 1.4 >= rough) step = power * factor;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push_back(i == 0 ? 0.0 : i * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  if (!(low > 0) || !(high >= low) || !std::isfinite(high)) return ticks;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int stride = std::max(1, (last - first) / 8);
  for (int power = first; power <= last; ++power) {
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor != 1.0 && last - first > 3) continue;
      if (stride > 1 && (power - first) % stride != 0) continue;
      const double tick = factor * std::pow(10.0, power);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

Picture bar_chart(const BarChart& chart) {
  constexpr double kRow = 42, kLabel = 18;
  double low = 0, high = 0;
  for (const Bar& bar : chart.bars) {
    const auto reach = [&](double v) {
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
    };
    reach(bar.value);
    if (bar.interval) reach(bar.interval->first), reach(bar.interval->second);
  }
  // The ends of whiskers and the line of zero have a width, too.
  const Axis axis{.low = low, .high = low == high ? 1 : high, .from = 0.3, .to = 99.7};
  const double height = kRow * static_cast<double>(chart.bars.size()) + 4;
  SvgWriter svg(height, chart.title);
  double y = 0;
  for (const Bar& bar : chart.bars) {
    const std::string text = fitted(text_of(bar, chart.unit), kFont, kNarrowPicture / 2);
    const double room = kNarrowPicture - 10 - estimated_width(text, kFont);
    svg.begin_group(bar.tooltip.empty() ? bar.label + ": " + text : bar.tooltip);
    svg.text({0, y + kFont + 2}, fitted(bar.label, kFont, room));
    svg.text({100, y + kFont + 2}, text, {.anchor = TextAnchor::kEnd, .ink = ink::kMuted});
    draw_bar(svg, bar, axis, y + kLabel);
    svg.end_group();
    svg.line({axis.at(0), y + kLabel - 2}, {axis.at(0), y + kRow - 8}, ink::kMuted);
    y += kRow;
  }
  return {.svg = svg.finish()};
}

Picture line_plot(const LinePlot& plot) {
  Axis x = fit(plot, true), y = fit(plot, false);
  x.from = 0.3;
  x.to = 99.7;
  y.from = plot.height - 48;
  y.to = 2.5 * kFont;
  SvgWriter svg(plot.height, plot.title);
  draw_grid(svg, x, y);
  for (size_t i = 0; i < plot.series.size(); ++i) draw_series(svg, plot.series[i], i, x, y);
  draw_labels(svg, plot, x, y);
  Picture picture{.svg = svg.finish()};
  if (plot.series.size() < 2) return picture;
  PictureKey& key = picture.keys.emplace_back();
  for (size_t i = 0; i < plot.series.size(); ++i)
    key.entries.push_back({ink::series(i), shortened(plot.series[i].name, 60)});
  return picture;
}

}  // namespace ridge
