// Reports as one HTML file that needs nothing else: no script, no outside URL, light or dark as
// the reader's system is. Nothing is wider than the page, from a phone's 390 pixels on: text wraps,
// tables of many columns become blocks, and pictures stretch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/html/picture.h"

namespace ridge {

enum class Tone { kNeutral, kGood, kWarning, kBad };

struct HtmlTable {
  struct Column {
    std::string heading;
    bool numeric = false;  // right-aligned, digits in columns
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each has the length of columns, else InternalError
};

/// One thing that was compared with another, and what came out.
struct HtmlEntry {
  Tone tone = Tone::kNeutral;
  std::string verdict;
  std::string title{}, text{};    ///< The entry's name, and more about it.
  std::string value{}, detail{};  ///< The number, and how sure it is; more than one line may be.
  std::string svg{};     ///< One line high, on the scale that all entries share; may be empty.
  std::string remark{};  ///< Stands below all of that; may be empty.
};

enum class FigureWidth {
  kPage,    ///< Full width of the page, for timelines.
  kColumn,  ///< No wider than a paragraph, for pictures with few parts.
};

/// Builds one page from top to bottom. All text may hold any bytes and is escaped; only
/// pictures are markup, from our own writers.
class HtmlReport {
 public:
  HtmlReport(std::string_view title, std::string_view subtitle = {});

  /// `level` 2 or 3; 1 is the title.
  void heading(int level, std::string_view text);
  void paragraph(std::string_view text);
  void list(const std::vector<std::string>& items);
  /// A boxed remark with a coloured edge: a verdict or a warning.
  void callout(Tone tone, std::string_view title, std::string_view text);
  /// Few large numbers in a row: (value, what it is).
  struct Figure {
    std::string value;
    std::string caption;
  };
  void key_figures(const std::vector<Figure>& figures);
  /// On a phone a row of more than three columns becomes a block.
  void table(const HtmlTable& table);
  /// Names and what is said of each: (name, text).
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  /// A list whose pictures share the scale that `axis` (SVG, may be empty) has the numbers of.
  void entries(std::string_view axis, const std::vector<HtmlEntry>& entries);
  /// Text in a fixed-width font with its line breaks: a recipe, a command.
  void code(std::string_view text);
  void figure(const Picture& picture,
              std::string_view caption = {},
              FigureWidth width = FigureWidth::kColumn);
  /// All that is written up to end_details() is folded away under `summary`.
  void begin_details(std::string_view summary);
  void end_details();

  /// The page; InternalError when details are left open.
  std::string finish();

 private:
  std::string title_;
  std::string body_;
  int details_ = 0;
};

}  // namespace ridge
