#include "ridge/base/html/html_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <regex>

#include "ridge/base/error.h"
#include "ridge/base/html/charts.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/html/svg_writer.h"

namespace ridge {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Checks that elements nest: every end matches the last open start. Attributes are quoted in all
// our output and hold no raw '<' or '>', so that these mark tags.
::testing::AssertionResult is_balanced(const std::string& markup) {
  static const std::vector<std::string> kVoid = {"meta", "!doctype"};
  std::vector<std::string> open;
  for (size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1)) {
    const size_t end = markup.find('>', at);
    if (end == std::string::npos) return ::testing::AssertionFailure() << "a tag does not end";
    const std::string tag = markup.substr(at + 1, end - at - 1);
    const bool closes = tag.starts_with("/");
    const std::string name =
        tag.substr(closes ? 1 : 0, tag.find_first_of(" /", 1) - (closes ? 1 : 0));
    if (closes) {
      if (open.empty() || open.back() != tag.substr(1))
        return ::testing::AssertionFailure() << "</" << tag.substr(1) << "> closes nothing";
      open.pop_back();
    } else if (!tag.ends_with("/") && std::find(kVoid.begin(), kVoid.end(), name) == kVoid.end()) {
      open.push_back(name);
    }
  }
  if (!open.empty()) return ::testing::AssertionFailure() << "<" << open.back() << "> stays open";
  return ::testing::AssertionSuccess();
}

constexpr const char* kHostile = "</style><script>alert('1')</script>\" onload=\"x&amp;\xff\x01";

TEST(Markup, EscapesWhatCouldBeMarkup) {
  EXPECT_EQ(escape_markup("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  EXPECT_EQ(escape_markup("\x01\x7f\xff\tx\n"), "\ufffd\ufffd\ufffd\tx\n");
  EXPECT_EQ(escape_markup("\u00b5s"), "\u00b5s");
}

TEST(HtmlReport, HoldsEverythingAndNeedsNothing) {
  HtmlReport report("Title", "subtitle");
  report.heading(2, "Where the time goes");
  report.paragraph("first < second");
  report.list({"one", "two"});
  report.callout(Tone::kGood, "Faster", "by 3 %");
  report.key_figures({{"1.6x", "faster"}});
  report.table({{{"name"}, {"share", true}}, {{"conv", "31 %"}, {"matmul", "9 %"}}});
  report.code("a = 1\nb = 2");
  report.figure(bar_chart({.title = "bars", .bars = {{"a", 1}}}), "a caption");
  report.begin_details("more");
  report.paragraph("folded");
  report.end_details();
  const std::string html = report.finish();
  EXPECT_TRUE(is_balanced(html));
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_NE(html.find("<title>Title</title>"), std::string::npos);
  EXPECT_NE(html.find("<p>first &lt; second</p>"), std::string::npos);
  EXPECT_NE(html.find("<td class=\"n\">31 %</td>"), std::string::npos);
  EXPECT_NE(html.find("<th class=\"s\">name</th>"), std::string::npos);
  EXPECT_EQ(count(html, "<li>"), 2u);
  EXPECT_EQ(count(html, "<tr>"), 3u);
  EXPECT_EQ(count(html, "class=\"stack\""), 0u);
  EXPECT_NE(html.find("prefers-color-scheme: dark"), std::string::npos);
  // Nothing from outside, and nothing that runs.
  for (const char* outside :
       {"http:", "https:", "//", "url(", "@import", "<script", "<link", "src="})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

TEST(HtmlReport, HostileTextStaysText) {
  HtmlReport report(kHostile, kHostile);
  report.heading(3, kHostile);
  report.paragraph(kHostile);
  report.list({kHostile});
  report.callout(Tone::kBad, kHostile, kHostile);
  report.key_figures({{kHostile, kHostile}});
  report.table({{{kHostile}}, {{kHostile}}});
  report.code(kHostile);
  report.begin_details(kHostile);
  report.end_details();
  report.figure(bar_chart({.title = kHostile, .unit = kHostile, .bars = {{kHostile, 1}}}),
                kHostile);
  report.figure(line_plot({.title = kHostile,
                           .x_label = kHostile,
                           .y_label = kHostile,
                           .series = {{kHostile, {1, 2}, {3, 4}}, {kHostile, {1}, {2}}}}));
  const std::string html = report.finish();
  EXPECT_TRUE(is_balanced(html));
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("\" onload"), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  EXPECT_EQ(html.find('\x01'), std::string::npos);
}

// On a phone a table of many columns is a block a row, each cell with the name of its column.
TEST(HtmlReport, WideTablesCanBeStacked) {
  HtmlReport report("t");
  const std::string name(40, 'x');
  report.table({{{"a"}, {"b"}, {"c", true}, {"<d>"}}, {{"short", "a word", "3", name}}});
  report.table({{{"a"}, {"b"}, {"c"}}, {{name, "2", "3"}}});
  const std::string html = report.finish();
  EXPECT_TRUE(is_balanced(html));
  EXPECT_EQ(count(html, "<table class=\"stack\">"), 1u);
  EXPECT_NE(html.find("<td data-label=\"&lt;d&gt;\">" + name + "</td>"), std::string::npos);
  // Short texts keep their words whole; numbers are recognised.
  EXPECT_NE(html.find("<td class=\"s\" data-label=\"a\">short</td>"), std::string::npos);
  EXPECT_NE(html.find("<td class=\"n\" data-label=\"c\">3</td>"), std::string::npos);
  EXPECT_NE(html.find("<td>" + name + "</td><td class=\"s\">2</td>"), std::string::npos);
}

TEST(HtmlReport, FactsAreNamesAndTexts) {
  HtmlReport report("t");
  report.facts({{"a < b", "why"}, {"next", kHostile}});
  const std::string html = report.finish();
  EXPECT_TRUE(is_balanced(html));
  EXPECT_NE(html.find("<dt>a &lt; b</dt><dd>why</dd>"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
}

// Nothing that a page could hold may need scrolling sideways.
TEST(HtmlReport, NothingScrollsSideways) {
  const std::string html = HtmlReport("t").finish();
  EXPECT_EQ(html.find("overflow-x"), std::string::npos);
  EXPECT_NE(html.find("white-space: pre-wrap"), std::string::npos);
  EXPECT_NE(html.find("overflow-wrap: anywhere"), std::string::npos);
}

TEST(HtmlReport, EntriesHaveVerdictNumberPictureAndRemark) {
  HtmlReport report("t");
  HtmlEntry entry{.tone = Tone::kGood,
                  .verdict = "kept",
                  .title = "jit",
                  .text = "a < b",
                  .value = "1.35",
                  .detail = "1.30 to 1.40",
                  .svg = "<svg></svg>",
                  .remark = "why"};
  report.entries("<svg id=\"axis\"></svg>", {entry, {.verdict = "open"}});
  const std::string html = report.finish();
  EXPECT_TRUE(is_balanced(html));
  EXPECT_NE(html.find("<li class=\"entry good\"><b>kept</b>"), std::string::npos);
  EXPECT_NE(html.find("a &lt; b"), std::string::npos);
  const std::vector<const char*> order = {"id=\"axis\"",
                                          ">kept<",
                                          ">jit<",
                                          ">1.35<",
                                          ">1.30 to 1.40<",
                                          "<svg></svg>",
                                          ">why<",
                                          ">open<"};
  for (size_t i = 1; i < order.size(); ++i)
    EXPECT_LT(html.find(order[i - 1]), html.find(order[i])) << order[i];
  EXPECT_EQ(count(html, "class=\"remark\""), 1u);
}

TEST(HtmlReport, KeysOfAPictureStandInThePage) {
  HtmlReport report("t");
  report.figure({.svg = "<svg></svg>",
                 .keys = {{.title = "causes", .entries = {{ink::series(1), "starved < 3 ms"}}}}},
                "caption",
                FigureWidth::kPage);
  const std::string html = report.finish();
  EXPECT_TRUE(is_balanced(html));
  EXPECT_NE(html.find("<figure><svg>"), std::string::npos);
  EXPECT_NE(html.find("<b>causes</b><span><i style=\"background:var(--series-2,#d47a1f)\"></i>"
                      "starved &lt; 3 ms</span>"),
            std::string::npos);
}

TEST(HtmlReport, MisuseIsAnInternalError) {
  HtmlReport report("t");
  EXPECT_THROW(report.heading(1, "x"), InternalError);
  EXPECT_THROW(report.table({{{"a"}, {"b"}}, {{"only one"}}}), InternalError);
  EXPECT_THROW(report.end_details(), InternalError);
  report.begin_details("open");
  EXPECT_THROW(report.finish(), InternalError);
}

TEST(SvgWriter, Primitives) {
  SvgWriter svg(50.5, "a \"label\"");
  svg.begin_group("tip & more");
  svg.rect(1, 2, 3.14159, -4, ink::series(0), 2);
  svg.end_group();
  svg.line({0, 1}, {2, 3}, ink::kGrid);
  svg.circle({5, 6}, 2, ink::kText);
  const SvgPoint points[] = {{0, 0}, {1.005, -0.001}, {2, 2}};
  svg.polyline(points, ink::series(9));
  svg.text({7, 8}, "a<b", {.anchor = TextAnchor::kEnd, .bold = true, .shift = 3});
  const std::string text = svg.finish();
  EXPECT_TRUE(is_balanced(text));
  // The picture is as wide as the page, and letters have a size of their own: nothing is scaled but
  // a line's points.
  EXPECT_TRUE(text.starts_with(R"(<svg width="100%" height="50.5")")) << text;
  EXPECT_EQ(count(text, "viewBox"), 1u);
  EXPECT_NE(text.find(R"(viewBox="0 0 100 50.5" preserveAspectRatio="none"><polyline)"),
            std::string::npos);
  EXPECT_NE(text.find("<title>tip &amp; more</title>"), std::string::npos);
  EXPECT_NE(text.find(R"(x="1%" y="2" width="3.14%" height="0")"), std::string::npos);
  EXPECT_NE(text.find(R"(cx="5%" cy="6" r="2")"), std::string::npos);
  EXPECT_NE(text.find(R"(x="7%" y="8" text-anchor="end" dx="3")"), std::string::npos);
  EXPECT_NE(text.find(">a&lt;b</text>"), std::string::npos);
  EXPECT_NE(text.find(R"(points="0,0 )"), std::string::npos);
  EXPECT_EQ(text.find("xmlns"), std::string::npos);
  EXPECT_EQ(ink::series(1), ink::series(9));
}

TEST(SvgWriter, MisuseIsAnInternalError) {
  SvgWriter svg(10, "x");
  EXPECT_THROW(svg.rect(0, 0, NAN, 1, ink::kText), InternalError);
  EXPECT_THROW(svg.line({0, INFINITY}, {1, 1}, ink::kText), InternalError);
  EXPECT_THROW(svg.end_group(), InternalError);
  svg.begin_group();
  EXPECT_THROW(svg.finish(), InternalError);
}

// Values of an attribute of all elements of a kind, in order.
std::vector<double> attributes(const std::string& svg, const char* element, const char* name) {
  const std::regex pattern(std::string("<") + element + "[^>]* " + name + "=\"([-0-9.]+)%\"");
  std::vector<double> found;
  for (std::sregex_iterator it(svg.begin(), svg.end(), pattern), end; it != end; ++it)
    found.push_back(std::stod((*it)[1]));
  return found;
}

TEST(BarChart, LengthsAreInProportion) {
  const std::string svg =
      bar_chart({.title = "t", .unit = "ms", .bars = {{"a", 10}, {"b", 40}, {"c", 0}, {"d", -20}}})
          .svg;
  EXPECT_TRUE(is_balanced(svg));
  const std::vector<double> widths = attributes(svg, "rect", "width");
  const std::vector<double> x = attributes(svg, "rect", "x");
  ASSERT_EQ(widths.size(), 4u);
  EXPECT_GT(widths[0], 10);  // per cent
  EXPECT_NEAR(widths[1], 4 * widths[0], 0.05);
  EXPECT_EQ(widths[2], 0);
  EXPECT_NEAR(widths[3], 2 * widths[0], 0.05);
  EXPECT_EQ(x[0], x[1]);
  EXPECT_NEAR(x[3] + widths[3], x[0], 0.02);  // the negative one ends at zero
  EXPECT_NE(svg.find(">10 ms</text>"), std::string::npos);
  EXPECT_NE(svg.find("<title>b: 40 ms</title>"), std::string::npos);
}

TEST(BarChart, OddValues) {
  const std::string svg =
      bar_chart({.title = "t",
                 .bars = {{"nothing", NAN},
                          {"endless", INFINITY},
                          {std::string(300, 'w'), 3},
                          {"whisker", 2, "two", "tip", 1, std::pair{1.0, 9.0}}}})
          .svg;
  EXPECT_TRUE(is_balanced(svg));
  EXPECT_EQ(count(svg, "<rect"), 2u);
  EXPECT_EQ(count(svg, "no value</text>"), 2u);
  EXPECT_EQ(count(svg, "\u2026"), 1u);  // the long label is cut where it is drawn, not in its tip
  EXPECT_TRUE(is_balanced(bar_chart({.title = "empty"}).svg));
  EXPECT_TRUE(is_balanced(bar_chart({.title = "zeros", .bars = {{"a", 0}, {"b", 0}}}).svg));
}

TEST(LinePlot, PointsBreakWhereNothingCanBeDrawn) {
  LinePlot plot{.title = "t", .x_label = "x", .y_label = "y"};
  plot.series = {{"s", {1, 2, 3, 4, 5, 6}, {1, 2, NAN, 4, 5, INFINITY}}};
  const std::string svg = line_plot(plot).svg;
  EXPECT_TRUE(is_balanced(svg));
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  plot.series[0].y = {1, 10, 0, -5, 100, 1000};
  plot.log_y = true;
  EXPECT_EQ(count(line_plot(plot).svg, "<polyline"), 2u);
  plot.series[0].points_only = true;
  EXPECT_EQ(count(line_plot(plot).svg, "<circle"), 4u);
  plot.series[0].x.pop_back();
  EXPECT_THROW(line_plot(plot), InternalError);
}

TEST(LinePlot, DegenerateDataStillDraws) {
  for (const PlotSeries& series : {PlotSeries{"none", {}, {}},
                                   PlotSeries{"one", {3}, {7}},
                                   PlotSeries{"flat", {1, 2}, {5, 5}},
                                   PlotSeries{"zeros", {0, 0}, {0, 0}},
                                   PlotSeries{"nan", {NAN}, {NAN}},
                                   PlotSeries{"huge", {1, 2}, {-1e300, 1e300}}}) {
    for (bool log : {false, true})
      EXPECT_TRUE(is_balanced(
          line_plot({.title = "t", .series = {series}, .log_x = log, .log_y = log}).svg))
          << series.name;
  }
}

TEST(LinePlot, LongSeriesAreThinnedButKeepTheirExtremes) {
  PlotSeries series{"s", {}, {}};
  std::mt19937 random(3);
  for (int i = 0; i < 100'000; ++i) {
    series.x.push_back(i);
    series.y.push_back(static_cast<double>(random() % 1000));
  }
  series.y[31'416] = 5000;
  series.y[70'000] = -5000;
  const std::string svg = line_plot({.title = "t", .series = {series}}).svg;
  EXPECT_LT(svg.size(), 80'000u);
  // Every point that is drawn, by its y: the two outliers are the ends of the range.
  const std::regex point(",([-0-9.]+)[ \"]");
  double least = 1e9, greatest = -1e9;
  for (std::sregex_iterator
           it(svg.begin() + static_cast<ptrdiff_t>(svg.find("<polyline")), svg.end(), point),
       end;
       it != end;
       ++it) {
    least = std::min(least, std::stod((*it)[1]));
    greatest = std::max(greatest, std::stod((*it)[1]));
  }
  EXPECT_GT(greatest - least, 200);  // pixels of 320, most of which the outliers span
}

TEST(LinePlot, ItsKeyHasEachSeries) {
  LinePlot plot{.title = "t", .series = {{"before", {1}, {2}}}};
  EXPECT_TRUE(line_plot(plot).keys.empty());
  plot.series.push_back({"after", {1}, {2}});
  ASSERT_EQ(line_plot(plot).keys.size(), 1u);
  EXPECT_EQ(line_plot(plot).keys[0].entries[1].text, "after");
}

TEST(Ticks, Linear) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(linear_ticks(1200, 5300, 4), (std::vector<double>{2000, 3000, 4000, 5000}));
  EXPECT_TRUE(linear_ticks(1, 1, 5).empty());
  EXPECT_TRUE(linear_ticks(0, INFINITY, 5).empty());
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int i = 0; i < 2000; ++i) {
    const double scale = std::exp2(60 * uniform(random));
    const double low = scale * uniform(random), high = low + scale * std::fabs(uniform(random));
    if (!(high - low > scale * 1e-3)) continue;
    const std::vector<double> ticks = linear_ticks(low, high, 5);
    EXPECT_GE(ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(ticks.size(), 8u) << low << " " << high;
  }
}

TEST(Ticks, Logarithmic) {
  EXPECT_EQ(log_ticks(1, 100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(log_ticks(0.5, 3e4).size(), 5u);  // 1, 10, 100, 1000, 10000
  EXPECT_LE(log_ticks(1e-30, 1e30).size(), 10u);
  EXPECT_TRUE(log_ticks(0, 1).empty());
  EXPECT_TRUE(log_ticks(1, INFINITY).empty());
}

TEST(ReadableNumber, ForPeople) {
  const std::pair<double, const char*> cases[] = {{0, "0"},
                                                  {-0.0, "0"},
                                                  {1, "1"},
                                                  {62.75, "62.75"},
                                                  {1234.56, "1235"},
                                                  {123456, "123456"},
                                                  {0.5, "0.5"},
                                                  {0.0123, "0.0123"},
                                                  {-3.14159, "-3.142"},
                                                  {12e6, "1.2e+07"},
                                                  {0.0001234567, "0.0001235"},
                                                  {NAN, "nan"},
                                                  {-INFINITY, "-inf"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(readable_number(value), text);
}

}  // namespace
}  // namespace ridge
