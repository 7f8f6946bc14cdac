#include "ridge/base/html/svg_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

// A coordinate with at most two decimals: a hundredth of a pixel is not seen.
std::string number(double value) {
  check_internal(std::isfinite(value), "[SvgWriter] coordinate {}", value);
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string percent(double value) { return number(value) + "%"; }

}  // namespace

namespace ink {

std::string_view series(size_t index) {
  // Apart also for those who confuse red and green; the page gives the dark variants.
  static constexpr std::array<std::string_view, 8> kSeries = {"var(--series-1,#2f6fb2)",
                                                              "var(--series-2,#d47a1f)",
                                                              "var(--series-3,#2f8f68)",
                                                              "var(--series-4,#b24a74)",
                                                              "var(--series-5,#7a5fb5)",
                                                              "var(--series-6,#2797a8)",
                                                              "var(--series-7,#9a7f1c)",
                                                              "var(--series-8,#70767d)"};
  return kSeries[index % kSeries.size()];
}

}  // namespace ink

SvgWriter::SvgWriter(double height, std::string_view label) : height_(height), label_(label) {}

void SvgWriter::rect(
    double x, double y, double width, double height, std::string_view fill, double round) {
  body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}")",
                       percent(x),
                       number(y),
                       percent(std::max(width, 0.0)),
                       number(std::max(height, 0.0)));
  if (round > 0) body_ += fmt::format(R"( rx="{}")", number(round));
  body_ += fmt::format(R"( style="fill:{}"/>)", escape_markup(fill));
}

void SvgWriter::circle(SvgPoint centre, double radius, std::string_view fill) {
  body_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}" style="fill:{}"/>)",
                       percent(centre.x),
                       number(centre.y),
                       number(radius),
                       escape_markup(fill));
}

void SvgWriter::line(SvgPoint from, SvgPoint to, std::string_view stroke, double width) {
  body_ +=
      fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" style="stroke:{};stroke-width:{}"/>)",
                  percent(from.x),
                  number(from.y),
                  percent(to.x),
                  number(to.y),
                  escape_markup(stroke),
                  number(width));
}

void SvgWriter::polyline(std::span<const SvgPoint> points, std::string_view stroke, double width) {
  if (points.empty()) return;
  // Points have no per cents of their own: a picture within the picture is stretched instead.
  body_ += fmt::format(
      R"(<svg width="100%" height="{0}" viewBox="0 0 100 {0}" preserveAspectRatio="none">)"
      R"(<polyline points=")",
      number(height_));
  for (size_t i = 0; i < points.size(); ++i)
    body_ += fmt::format("{}{},{}", i ? " " : "", number(points[i].x), number(points[i].y));
  body_ += fmt::format(R"(" style="fill:none;stroke:{};stroke-width:{};stroke-linejoin:round;)"
                       R"(stroke-linecap:round;vector-effect:non-scaling-stroke"/></svg>)",
                       escape_markup(stroke),
                       number(width));
}

void SvgWriter::text(SvgPoint at, std::string_view content, const TextStyle& style) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  body_ += fmt::format(R"(<text x="{}" y="{}" text-anchor="{}")",
                       percent(at.x),
                       number(at.y),
                       kAnchors[static_cast<size_t>(style.anchor)]);
  if (style.shift != 0) body_ += fmt::format(R"( dx="{}")", number(style.shift));
  body_ += fmt::format(R"( style="fill:{};font-size:{}px{}">{}</text>)",
                       escape_markup(style.ink),
                       number(style.size),
                       style.bold ? ";font-weight:600" : "",
                       escape_markup(content));
}

void SvgWriter::begin_group(std::string_view tooltip) {
  ++groups_;
  body_ += "<g>";
  if (!tooltip.empty()) body_ += fmt::format("<title>{}</title>", escape_markup(tooltip));
}

void SvgWriter::end_group() {
  check_internal(groups_ > 0, "[SvgWriter] end_group without begin_group");
  --groups_;
  body_ += "</g>\n";
}

std::string SvgWriter::finish() {
  check_internal(groups_ == 0, "[SvgWriter] {} unclosed groups", groups_);
  return fmt::format(R"(<svg width="100%" height="{}" role="img" aria-label="{}">)"
                     "\n{}</svg>\n",
                     number(height_),
                     escape_markup(label_),
                     body_);
}

double estimated_width(std::string_view text, double size) {
  double em = 0;
  for (char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;  // inside a UTF-8 character
    const bool narrow = std::string_view("iljtfrI.,:;|!'()[] ").find(c) != std::string_view::npos;
    const bool wide = std::string_view("mwMW%@").find(c) != std::string_view::npos;
    em += narrow ? 0.37 : wide ? 0.97 : 0.63;
  }
  return em * size;
}

std::string fitted(std::string_view text, double size, double width) {
  std::string line = plain_line(text);
  if (estimated_width(line, size) <= width) return line;
  std::string_view rest = line;
  std::string shown;
  while (!rest.empty()) {
    const size_t length = std::max<size_t>(1, utf8_length(rest));
    if (estimated_width(shown, size) + 1.5 * size > width) break;
    shown += rest.substr(0, length);
    rest.remove_prefix(length);
  }
  return shown + "\u2026";
}

}  // namespace ridge
