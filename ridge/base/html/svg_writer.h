// SVG primitives for pictures that are as wide as their page. The origin is the upper left corner,
// y grows downwards. Positions and widths along x are in per cent of the picture's width, and all
// other lengths in pixels: bars stretch with the page, letters keep their size.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ridge {

/// Colours that follow the page's light or dark theme, and have a value of their own where the
/// picture stands alone.
namespace ink {
inline constexpr std::string_view kText = "var(--text,#1f2328)";
inline constexpr std::string_view kMuted = "var(--muted,#656d76)";
inline constexpr std::string_view kGrid = "var(--grid,#e3e6ea)";
inline constexpr std::string_view kGood = "var(--good,#2f8f68)";
inline constexpr std::string_view kBad = "var(--bad,#c2413b)";
inline constexpr std::string_view kBand = "var(--band,#c9dcf0)";
/// The colour of series `index`; eight differ, then they repeat.
std::string_view series(size_t index);
}  // namespace ink

struct SvgPoint {
  double x = 0;  // per cent
  double y = 0;  // pixels
};

enum class TextAnchor { kStart, kMiddle, kEnd };

struct TextStyle {
  TextAnchor anchor = TextAnchor::kStart;
  double size = 12;
  std::string_view ink = ink::kText;
  bool bold = false;
  double shift = 0;  // pixels to the right of the text's own point
};

/// Builds one picture. Text may hold any bytes. Misuse (groups unclosed at the end, coordinates
/// that are not finite) is an InternalError.
class SvgWriter {
 public:
  /// `label` is read out to those who do not see the picture.
  SvgWriter(double height, std::string_view label);

  void rect(
      double x, double y, double width, double height, std::string_view fill, double round = 0);
  void circle(SvgPoint centre, double radius, std::string_view fill);
  void line(SvgPoint from, SvgPoint to, std::string_view stroke, double width = 1);
  void polyline(std::span<const SvgPoint> points, std::string_view stroke, double width = 1.5);
  void text(SvgPoint at, std::string_view content, const TextStyle& style = {});

  /// All that is written up to end_group() shows `tooltip` under the pointer (none when empty).
  void begin_group(std::string_view tooltip = {});
  void end_group();

  /// The picture, for use within HTML.
  std::string finish();

 private:
  std::string body_;
  double height_;
  std::string label_;
  int groups_ = 0;
};

/// The width of a picture on a page that is 390 pixels wide: what a line of text has to fit into.
inline constexpr double kNarrowPicture = 350;

/// An estimate of the width of `text` in pixels at a font size, for a wide sans-serif font.
double estimated_width(std::string_view text, double size);

/// `text` on one line, cut at the end so that its estimated width is at most `width` pixels.
std::string fitted(std::string_view text, double size, double width);

}  // namespace ridge
