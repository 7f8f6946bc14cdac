// The two charts of Ridge's reports, as wide as their page.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/html/picture.h"

namespace ridge {

class SvgWriter;

struct Bar {
  std::string label;
  double value = 0;
  std::string text{};     // above the bar's end; the value with the unit when empty
  std::string tooltip{};  // label and text when empty
  size_t series = 0;      // picks the colour
  std::optional<std::pair<double, double>> interval{};  // drawn as a whisker
};

struct BarChart {
  std::string title;  // for the tooltip of the whole and those who do not see it
  std::string unit{};
  std::vector<Bar> bars{};
};

/// Horizontal bars from a common zero, in the order given, each below its label; values may be
/// negative. Values that are not finite get no bar, and their text says so.
Picture bar_chart(const BarChart& chart);

struct PlotSeries {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // has the length of x, else InternalError
  bool points_only = false;
};

struct LinePlot {
  std::string title;
  std::string x_label{};
  std::string y_label{};
  std::vector<PlotSeries> series{};
  bool log_x = false;  // base 10
  bool log_y = false;
  double height = 320;
};

/// Lines over two axes with a grid and a key. Points that are not finite, or not positive on a
/// logarithmic axis, break their line. Lines with more points than pixels are drawn by the least
/// and the greatest value of each of kPlotColumns columns.
inline constexpr double kPlotColumns = 1000;
Picture line_plot(const LinePlot& plot);

/// Round numbers within [low, high], 1, 2 or 5 times a power of ten apart, at most about
/// 1.4 * count of them; none for an empty or infinite range.
std::vector<double> linear_ticks(double low, double high, int count);

/// Powers of ten within [low, high], with their 2 and 5 fold where there are few.
std::vector<double> log_ticks(double low, double high);

/// The number of a tick at `x` per cent of the width; near an edge it stands to the side of its
/// tick that lies within the picture.
void draw_tick(SvgWriter& svg, double x, double y, std::string_view text);

/// A number for people: up to four significant digits, no exponent from 1e-3 up to 1e7.
std::string readable_number(double value);

}  // namespace ridge
