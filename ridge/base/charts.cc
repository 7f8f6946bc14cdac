#include "ridge/base/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/svg_writer.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

constexpr double kFont = 12;

// `text`, cut at the end so that it fits into `width` pixels.
std::string fitted(std::string_view text, double width) {
  if (estimated_width(text, kFont) <= width) return std::string(text);
  std::string shown;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, utf8_length(text));
    if (estimated_width(shown, kFont) + kFont * 1.5 > width) break;
    shown += text.substr(0, length);
    text.remove_prefix(length);
  }
  return shown + "\u2026";
}

// Maps values to pixels.
struct Axis {
  double low = 0, high = 1;  // already logarithms on a logarithmic axis
  double from = 0, to = 1;   // pixels
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

void draw_bar(SvgWriter& svg, const Bar& bar, const Axis& axis, double y, const std::string& text) {
  constexpr double kHeight = 18;
  const double zero = axis.at(0);
  double text_at = zero;
  if (std::isfinite(bar.value)) {
    const double end = axis.at(bar.value);
    svg.rect(std::min(zero, end), y, std::fabs(end - zero), kHeight, ink::series(bar.series), 2);
    text_at = std::max(zero, end);
  }
  if (bar.interval && axis.has(bar.interval->first) && axis.has(bar.interval->second)) {
    const double low = axis.at(bar.interval->first), high = axis.at(bar.interval->second);
    const double middle = y + kHeight / 2;
    svg.line({low, middle}, {high, middle}, ink::kText, 1.25);
    svg.line({low, middle - 4}, {low, middle + 4}, ink::kText, 1.25);
    svg.line({high, middle - 4}, {high, middle + 4}, ink::kText, 1.25);
    text_at = std::max(text_at, high);
  }
  svg.text({text_at + 7, y + kHeight - 5}, text, {.ink = ink::kMuted});
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

std::vector<double> ticks_of(const Axis& axis, int count) {
  if (!axis.log) return linear_ticks(axis.low, axis.high, count);
  return log_ticks(std::pow(10.0, axis.low), std::pow(10.0, axis.high));
}

// The points of one unbroken stretch, at most a few for each pixel column: the first, the least,
// the greatest and the last, in their order, keep the look of the line.
std::vector<SvgPoint> thinned(const std::vector<SvgPoint>& points) {
  if (points.size() < 2000) return points;
  std::vector<SvgPoint> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin + 1, least = begin, greatest = begin;
    while (end < points.size() && std::floor(points[end].x) == std::floor(points[begin].x)) {
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

void draw_legend(SvgWriter& svg, const LinePlot& plot, double left) {
  double at = left;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    if (plot.series[i].points_only)
      svg.circle({at + 9, 11}, 3, ink::series(i));
    else
      svg.rect(at, 9, 14, 4, ink::series(i), 2);
    const std::string name = fitted(plot.series[i].name, 160);
    svg.text({at + 20, 15}, name, {.ink = ink::kText});
    at += 38 + estimated_width(name, kFont);
  }
}

void draw_axes(SvgWriter& svg, const LinePlot& plot, const Axis& x, const Axis& y) {
  for (double tick : ticks_of(y, 5)) {
    svg.line({x.from, y.at(tick)}, {x.to, y.at(tick)}, ink::kGrid);
    svg.text({x.from - 8, y.at(tick) + 4},
             readable_number(tick),
             {.anchor = TextAnchor::kEnd, .ink = ink::kMuted});
  }
  for (double tick : ticks_of(x, 6)) {
    svg.line({x.at(tick), y.from}, {x.at(tick), y.from + 4}, ink::kMuted);
    svg.text({x.at(tick), y.from + 18},
             readable_number(tick),
             {.anchor = TextAnchor::kMiddle, .ink = ink::kMuted});
  }
  svg.line({x.from, y.from}, {x.to, y.from}, ink::kMuted);
  svg.text({(x.from + x.to) / 2, y.from + 38},
           plot.x_label,
           {.anchor = TextAnchor::kMiddle, .ink = ink::kText});
  svg.text({14, (y.from + y.to) / 2},
           plot.y_label,
           {.anchor = TextAnchor::kMiddle, .ink = ink::kText, .rotate = -90});
}

}  // namespace

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

std::string bar_chart(const BarChart& chart) {
  constexpr double kRow = 26, kWidestLabel = 260;
  double label_width = 0, text_width = 0, low = 0, high = 0;
  for (const Bar& bar : chart.bars) {
    label_width = std::max(label_width, estimated_width(bar.label, kFont));
    text_width = std::max(text_width, estimated_width(text_of(bar, chart.unit), kFont));
    const auto reach = [&](double v) {
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
    };
    reach(bar.value);
    if (bar.interval) reach(bar.interval->first), reach(bar.interval->second);
  }
  label_width = std::min(label_width, kWidestLabel);
  Axis axis{.low = low, .high = low == high ? 1 : high, .from = label_width + 12};
  axis.to = std::max(axis.from + 60, chart.width - text_width - 14);
  const double height = kRow * static_cast<double>(chart.bars.size()) + 4;
  SvgWriter svg(chart.width, height, chart.title);
  double y = 4;
  for (const Bar& bar : chart.bars) {
    const std::string text = text_of(bar, chart.unit);
    svg.begin_group(bar.tooltip.empty() ? bar.label + ": " + text : bar.tooltip);
    svg.text(
        {label_width, y + 13}, fitted(bar.label, label_width + 1), {.anchor = TextAnchor::kEnd});
    draw_bar(svg, bar, axis, y, text);
    svg.end_group();
    y += kRow;
  }
  svg.line({axis.at(0), 0}, {axis.at(0), height}, ink::kMuted);
  return svg.finish();
}

std::string line_plot(const LinePlot& plot) {
  Axis x = fit(plot, true), y = fit(plot, false);
  double widest = 0;
  for (double tick : ticks_of(y, 5))
    widest = std::max(widest, estimated_width(readable_number(tick), kFont));
  x.from = 36 + widest;
  x.to = plot.width - 16;
  y.from = plot.height - 48;
  y.to = plot.series.size() > 1 ? 30 : 12;
  SvgWriter svg(plot.width, plot.height, plot.title);
  draw_axes(svg, plot, x, y);
  for (size_t i = 0; i < plot.series.size(); ++i) draw_series(svg, plot.series[i], i, x, y);
  if (plot.series.size() > 1) draw_legend(svg, plot, x.from);
  return svg.finish();
}

}  // namespace ridge
