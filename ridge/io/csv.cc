#include "ridge/io/csv.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/io/csv_scanner.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

constexpr size_t kColumnLimit = 65536;
constexpr size_t kQuoteLimit = 40;  // bytes of a field that a message shows

bool is_missing(std::string_view text) {
  constexpr std::string_view kMissing[] = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"};
  return std::find(std::begin(kMissing), std::end(kMissing), text) != std::end(kMissing);
}

/// The rounded value of a decimal number that from_chars finds out of range: infinity where its
/// exponent is positive, else zero.
double saturated(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  const size_t mark = digits.find_first_of("eE");
  const size_t point = std::min(digits.find('.'), std::min(mark, digits.size()));
  const size_t lead = digits.find_first_of("123456789");
  int64_t exponent = 0;
  if (mark != digits.npos) {
    std::string_view text = digits.substr(mark + 1);
    const bool down = text.starts_with('-');
    if (down || text.starts_with('+')) text.remove_prefix(1);
    constexpr int64_t kHuge = int64_t{1} << 40;  // beyond any count of digits
    if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc())
      exponent = kHuge;
    exponent = std::min(exponent, kHuge) * (down ? -1 : 1);
  }
  // The number is 0.d... times ten to this, or a little more.
  const int64_t magnitude = exponent + static_cast<int64_t>(point) - static_cast<int64_t>(lead);
  const double result = magnitude > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  return negative ? -result : result;
}

std::optional<double> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc::result_out_of_range ? saturated(text) : value;
}

std::string shown(std::string_view text) {
  return valid_utf8(text.substr(0, kQuoteLimit)) + (text.size() > kQuoteLimit ? "..." : "");
}

/// Reads the file twice: for numbers, and again for the columns that turned out to hold text.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source, const CsvOptions& options)
      : text_(text), source_(source), options_(options) {}

  CsvTable read() {
    read_names();
    scan([this](size_t c, const CsvField& field) { add_number(table_.columns[c], field); }, true);
    text_columns_.resize(table_.columns.size());
    const auto is_text = [](const CsvColumn& column) { return column.is_text; };
    if (std::any_of(table_.columns.begin(), table_.columns.end(), is_text)) {
      scan([this](size_t c, const CsvField& field) { add_text(c, field); }, false);
      for (size_t c = 0; c < table_.columns.size(); ++c) sort_categories(c);
    }
    return std::move(table_);
  }

 private:
  using Categories = std::unordered_map<std::string, int32_t>;

  [[noreturn]] void fail(const CsvField& field, std::string_view problem) const {
    throw UserError(fmt::format("{}:{}:{}: {}", source_, field.line, field.column, problem));
  }

  void read_names() {
    CsvScanner scanner(text_, options_.separator, source_);
    std::vector<CsvField> row;
    check(scanner.next_row(row), "{}: no rows", source_);
    check(row.size() <= kColumnLimit, "{}: more than {} columns", source_, kColumnLimit);
    std::unordered_map<std::string_view, size_t> seen;
    for (size_t c = 0; c < row.size(); ++c) {
      CsvColumn& column = table_.columns.emplace_back();
      column.name = options_.header ? std::string(row[c].text) : "";
      if (column.name.empty()) column.name = fmt::format("column_{}", c + 1);
    }
    for (size_t c = 0; c < row.size(); ++c)
      if (!seen.emplace(table_.columns[c].name, c).second)
        fail(row[c], fmt::format("two columns are called '{}'", shown(table_.columns[c].name)));
  }

  /// Calls `add` with each field below the names; counts the rows if `first`.
  template <typename F>
  void scan(F&& add, bool first) {
    CsvScanner scanner(text_, options_.separator, source_);
    std::vector<CsvField> row;
    if (options_.header) scanner.next_row(row);
    while (scanner.next_row(row)) {
      if (row.size() != table_.columns.size())
        fail(row.back(),
             fmt::format("expected {} fields, got {}", table_.columns.size(), row.size()));
      for (size_t c = 0; c < row.size(); ++c) add(c, row[c]);
      table_.rows += first;
    }
  }

  void add_number(CsvColumn& column, const CsvField& field) const {
    if (column.is_text) return;
    const auto value = is_missing(field.text) ? std::numeric_limits<double>::quiet_NaN()
                                              : parse_number(field.text);
    if (value) {
      column.numbers.push_back(*value);
      return;
    }
    column.is_text = true;
    column.numbers = {};
    column.why_text = fmt::format(
        "{}:{}:{}: '{}' is not a number", source_, field.line, field.column, shown(field.text));
  }

  void add_text(size_t c, const CsvField& field) {
    CsvColumn& column = table_.columns[c];
    if (!column.is_text) return;
    if (is_missing(field.text)) {
      column.ids.push_back(-1);
      return;
    }
    Categories& known = text_columns_[c];
    const auto next = static_cast<int32_t>(known.size());
    column.ids.push_back(known.emplace(field.text, next).first->second);
  }

  /// Renumbers the categories, which are in the order of their first rows, by their names.
  void sort_categories(size_t c) {
    CsvColumn& column = table_.columns[c];
    for (const auto& entry : text_columns_[c]) column.categories.push_back(entry.first);
    std::sort(column.categories.begin(), column.categories.end());
    std::vector<int32_t> place(column.categories.size());
    for (size_t i = 0; i < place.size(); ++i)
      place[static_cast<size_t>(text_columns_[c].at(column.categories[i]))] =
          static_cast<int32_t>(i);
    for (int32_t& id : column.ids)
      if (id >= 0) id = place[static_cast<size_t>(id)];
  }

  std::string_view text_;
  const std::string& source_;
  const CsvOptions& options_;
  CsvTable table_;
  std::vector<Categories> text_columns_;
};

}  // namespace

const CsvColumn& CsvTable::column(std::string_view name) const {
  std::vector<std::string> names;
  for (const CsvColumn& column : columns) {
    if (column.name == name) return column;
    names.push_back(column.name);
  }
  throw UserError(fmt::format("no column '{}'", name), did_you_mean(name, names));
}

CsvTable parse_csv(std::string_view text, const std::string& source, const CsvOptions& options) {
  check(std::string_view("\"\r\n").find(options.separator) == std::string_view::npos,
        "a CSV separator may be neither a quote nor a line end");
  return CsvReader(text, source, options).read();
}

CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  const MappedFile file(path);
  return parse_csv(as_text(file.bytes()), path.string(), options);
}

}  // namespace ridge
