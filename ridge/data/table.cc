// Brings CSV columns and NPY arrays into one form.
#include "ridge/data/table.h"

#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/io/csv.h"
#include "ridge/io/npy.h"

namespace ridge::data {
namespace {

Table from_csv(const std::string& path, const std::string& target) {
  const CsvTable csv = read_csv(path);
  const CsvColumn& wanted = csv.column(target);
  Table table{.source = path, .rows = csv.rows};
  std::vector<const CsvColumn*> features;
  for (const CsvColumn& column : csv.columns) {
    if (&column == &wanted) continue;
    check(!column.is_text,
          "the feature '{}' is no column of numbers: {}",
          column.name,
          column.why_text);
    features.push_back(&column);
    table.features.push_back(column.name);
  }
  for (int64_t row = 0; row < csv.rows; ++row) {
    for (const CsvColumn* column : features) table.x.push_back(column->numbers[row]);
    if (!wanted.is_text)
      table.target.push_back(wanted.numbers[row]);
    else
      table.target.push_back(wanted.ids[row] < 0 ? std::numeric_limits<double>::quiet_NaN()
                                                 : static_cast<double>(wanted.ids[row]));
  }
  table.categories = wanted.categories;
  return table;
}

Table from_npy(const std::string& path, const std::string& labels) {
  const Tensor array = read_npy(path);
  const std::vector<int64_t>& shape = array.type().shape;
  check(shape.size() == 2, "'{}' has {} dimensions: a table has 2", path, shape.size());
  Table table{.source = path, .rows = shape[0]};
  const int64_t features = labels.empty() ? shape[1] - 1 : shape[1];
  for (int64_t i = 0; i < features; ++i) table.features.push_back(std::to_string(i));
  for (int64_t i = 0; i < array.elements(); ++i)
    (i % shape[1] < features ? table.x : table.target).push_back(array.at(i));
  if (labels.empty()) return table;
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

Table read_table(const std::string& path, const std::string& target, const std::string& labels) {
  Table table = path.ends_with(".npy") ? from_npy(path, labels) : from_csv(path, target);
  check(table.width() >= 1, "'{}' has no column beside the target", path);
  for (int64_t row = 0; row < table.rows; ++row)
    check(std::isfinite(table.target[row]), "'{}': row {} has no target", path, row + 1);
  for (double value : table.x) check(!std::isinf(value), "'{}' holds an infinite number", path);
  return table;
}

}  // namespace ridge::data
