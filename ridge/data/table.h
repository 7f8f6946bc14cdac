// A table of numbers with a target column, as files hold it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ridge::data {

/// The part of a file that is wanted.
struct TableRequest {
  std::string path{};  ///< A CSV or, by the name's end, an NPY file.
  /// The target's column of a CSV; nothing: no target is read, and NPY files have none.
  std::optional<std::string> target{};
  std::string labels{};  ///< The file with an NPY's target; empty: the last column.
  /// The features that a model takes, in its order; null: all.
  const std::vector<std::string>* columns = nullptr;
};

struct Table {
  std::string source{};
  int64_t rows = 0;
  std::vector<std::string> features{};  ///< UTF-8; of NPY files "0", "1", ...
  std::vector<double> x{};              ///< rows x features; NaN where missing.
  std::vector<double> target{};         ///< A row each; where there are categories, their numbers.
  std::string target_name{};            ///< UTF-8; of NPY files "".
  std::vector<std::string> categories{};  ///< Names of the classes, for a target that is text.
  std::vector<std::string> ignored{};     ///< Columns that are neither target nor wanted.

  int64_t width() const { return static_cast<int64_t>(features.size()); }
};

/// UserError for features that are no numbers or that are missing, and for rows without a target.
Table read_table(const TableRequest& request);

}  // namespace ridge::data
