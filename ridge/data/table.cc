// Brings CSV columns and NPY arrays into one form.
#include "ridge/data/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/named_list.h"
#include "ridge/base/utf8.h"
#include "ridge/io/csv.h"
#include "ridge/io/npy.h"

namespace ridge::data {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void fail_missing(const TableRequest& request,
                               const std::vector<std::string>& missing,
                               const std::vector<std::string>& there) {
  const std::string near = did_you_mean(missing[0], there);
  throw UserError(fmt::format("'{}' has no column{} {}, which the model was trained on",
                              request.path,
                              missing.size() == 1 ? "" : "s",
                              named_list(missing)),
                  near.empty() ? "give a table with the columns of the training" : near);
}

using Columns = std::vector<const CsvColumn*>;

// The columns of `csv` but for `target`, or those that are asked for, in their order.
Columns features_of(const CsvTable& csv,
                    const CsvColumn* target,
                    const TableRequest& request,
                    Table& table) {
  Columns features;
  std::vector<std::string> there;
  std::map<std::string, const CsvColumn*> left;
  for (const CsvColumn& column : csv.columns) {
    if (&column == target) continue;
    features.push_back(&column);
    there.push_back(valid_utf8(column.name));
    left.emplace(there.back(), &column);
  }
  if (request.columns == nullptr) {
    table.features = std::move(there);
    return features;
  }
  features.clear();
  std::vector<std::string> missing;
  for (const std::string& name : *request.columns) {
    const auto found = left.find(name);
    if (found == left.end()) {
      missing.push_back(name);
      continue;
    }
    features.push_back(found->second);
    left.erase(found);
  }
  if (!missing.empty()) fail_missing(request, missing, there);
  for (const std::string& name : there)
    if (left.contains(name)) table.ignored.push_back(name);
  table.features = *request.columns;
  return features;
}

const CsvColumn* target_of(const CsvTable& csv, const TableRequest& request) {
  if (!request.target) return nullptr;
  try {
    return &csv.column(*request.target);
  } catch (const UserError& error) {
    throw UserError(fmt::format("'{}': {}", request.path, error.message()), error.fix());
  }
}

Table from_csv(const TableRequest& request) {
  const CsvTable csv = read_csv(request.path);
  const CsvColumn* const target = target_of(csv, request);
  Table table{.source = request.path, .rows = csv.rows};
  const Columns features = features_of(csv, target, request, table);
  for (const CsvColumn* column : features)
    check(!column->is_text,
          "the feature '{}' is no column of numbers: {}",
          valid_utf8(column->name),
          column->why_text);
  for (int64_t row = 0; row < csv.rows; ++row) {
    for (const CsvColumn* column : features) table.x.push_back(column->numbers[row]);
    if (target == nullptr) continue;
    if (!target->is_text)
      table.target.push_back(target->numbers[row]);
    else
      table.target.push_back(target->ids[row] < 0 ? kMissing
                                                  : static_cast<double>(target->ids[row]));
  }
  if (target == nullptr) return table;
  table.target_name = valid_utf8(target->name);
  for (const std::string& name : target->categories) table.categories.push_back(valid_utf8(name));
  return table;
}

// An array has no names: its columns are those of the training by their number.
void check_columns(const Table& table, const std::vector<std::string>& columns) {
  if (table.features == columns) return;
  const bool numbered = columns[0] == "0";
  throw UserError(
      numbered ? fmt::format("'{}' has {} features, but the model was trained on {}",
                             table.source,
                             table.width(),
                             columns.size())
               : fmt::format("'{}' does not name its columns, but the model was trained on {}",
                             table.source,
                             named_list(columns)),
      numbered ? "give an array of that width" : "give a CSV with these columns");
}

Table from_npy(const TableRequest& request) {
  const std::string& path = request.path;
  const std::string& labels = request.labels;
  const Tensor array = read_npy(path);
  const std::vector<int64_t>& shape = array.type().shape;
  check(shape.size() == 2, "'{}' has {} dimensions: a table has 2", path, shape.size());
  Table table{.source = path, .rows = shape[0]};
  const bool has_target = request.target && labels.empty();
  const int64_t features = has_target ? shape[1] - 1 : shape[1];
  for (int64_t i = 0; i < features; ++i) table.features.push_back(std::to_string(i));
  if (request.columns != nullptr) check_columns(table, *request.columns);
  for (int64_t i = 0; i < array.elements(); ++i)
    (i % shape[1] < features ? table.x : table.target).push_back(array.at(i));
  if (!request.target || has_target) return table;
  const Tensor target = read_npy(labels);
  check(target.elements() == table.rows,
        "'{}' has {} rows, but '{}' has {} labels",
        path,
        table.rows,
        labels,
        target.elements());
  for (int64_t i = 0; i < table.rows; ++i) table.target.push_back(target.at(i));
  return table;
}

}  // namespace

Table read_table(const TableRequest& request) {
  const std::string& path = request.path;
  Table table = path.ends_with(".npy") ? from_npy(request) : from_csv(request);
  check(table.width() >= 1, "'{}' has no column beside the target", path);
  if (request.target)
    for (int64_t row = 0; row < table.rows; ++row)
      check(std::isfinite(table.target[row]), "'{}': row {} has no target", path, row + 1);
  for (double value : table.x) check(!std::isinf(value), "'{}' holds an infinite number", path);
  return table;
}

}  // namespace ridge::data
