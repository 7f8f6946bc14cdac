// CSV files (RFC 4180) as columns of numbers or categories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct CsvOptions {
  char separator = ',';
  /// Whether the first row holds names; else they are column_1, column_2, ...
  bool header = true;
};

/// A column of numbers, where each of its fields is one or is missing; else of categories.
struct CsvColumn {
  std::string name;
  bool is_text = false;
  std::vector<double> numbers;  ///< A row each; NaN where missing. Empty for text.
  std::vector<int32_t> ids;     ///< Category of each row; -1 where missing. Empty for numbers.
  std::vector<std::string> categories;  ///< Sorted by their bytes.
  /// For text: "train.csv:7:3: 'abc' is not a number", of the first field that made it so.
  std::string why_text;
};

struct CsvTable {
  int64_t rows = 0;
  std::vector<CsvColumn> columns;

  /// UserError with the nearest names when there is none.
  const CsvColumn& column(std::string_view name) const;
};

/// Fields may stand in double quotes and then hold separators, line ends and doubled quotes; lines
/// end in LF, CRLF or CR; empty lines are skipped. Missing is a field that is empty or one of NA,
/// N/A, NaN, nan, null, NULL and None. UserErrors open with "source:line:column:", the column in
/// bytes from 1.
CsvTable parse_csv(std::string_view text,
                   const std::string& source,
                   const CsvOptions& options = {});

/// The same from a file.
CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

}  // namespace ridge
