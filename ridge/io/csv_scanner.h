// Cuts the text of a CSV file into rows of fields.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct CsvField {
  std::string_view text;  ///< Without quotes; valid until the next row is read.
  int64_t line = 0;       ///< Line on which the field begins, from 1.
  int64_t column = 0;     ///< In bytes, from 1.
};

class CsvScanner {
 public:
  /// The texts must outlive the scanner. A byte order mark is skipped.
  CsvScanner(std::string_view text, char separator, std::string_view source);

  /// The fields of the next row that is not empty; false at the end. UserError for quotes that do
  /// not fit together.
  bool next_row(std::vector<CsvField>& row);

 private:
  CsvField field();
  std::string_view quoted();
  std::string_view plain();
  bool at_line_end() const;
  void end_line();
  [[noreturn]] void fail(std::string_view problem) const;

  std::string_view text_;
  char separator_;
  std::string_view source_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
  std::deque<std::string> unescaped_;  // texts of this row; references stay valid as it grows
};

}  // namespace ridge
