// Reports as one HTML file that needs nothing else: no script, no outside URL, light or dark as
// the reader's system is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

enum class Tone { kNeutral, kGood, kWarning, kBad };

struct HtmlTable {
  struct Column {
    std::string heading;
    bool numeric = false;  // right-aligned, digits in columns
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as wide as columns, else InternalError
};

/// Builds one page from top to bottom. All text may hold any bytes and is escaped; only figure()
/// takes markup, from our own writers.
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
  void table(const HtmlTable& table);
  /// Text in a fixed-width font with its line breaks: a recipe, a command.
  void code(std::string_view text);
  /// `svg` as SvgWriter::finish() and the charts give it.
  void figure(std::string_view svg, std::string_view caption = {});
  /// What follows up to end_details() is folded away under `summary`.
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
