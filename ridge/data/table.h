// A table of numbers with a target column, as files hold it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridge::data {

struct Table {
  std::string source{};
  int64_t rows = 0;
  std::vector<std::string> features{};  ///< Names; of NPY files "0", "1", ...
  std::vector<double> x{};              ///< rows x features; NaN where missing.
  std::vector<double> target{};         ///< A row each; where there are categories, their numbers.
  std::vector<std::string> categories{};  ///< Names of the classes, for a target that is text.

  int64_t width() const { return static_cast<int64_t>(features.size()); }
};

/// Reads a CSV or, by the name's end, an NPY file. `target` names the target's column of a CSV;
/// `labels` the file with an NPY's target, or is empty. UserError for features that are no numbers
/// and for rows without a target.
Table read_table(const std::string& path, const std::string& target, const std::string& labels);

}  // namespace ridge::data
