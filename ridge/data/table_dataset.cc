// Standardises features by the training rows and numbers the classes.
#include "ridge/data/table_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/named_list.h"
#include "ridge/base/utf8.h"
#include "ridge/data/order.h"
#include "ridge/data/table.h"

namespace ridge::data {
namespace {

/// Adds mean and standard deviation of each feature over `rows`, missing values left out; a
/// deviation of 0 becomes 1.
void add_statistics(const Table& table,
                    const std::vector<int64_t>& rows,
                    DataDescription& description) {
  for (int64_t c = 0; c < table.width(); ++c) {
    const auto sum = [&](auto&& term) {
      double total = 0;
      int64_t count = 0;
      for (int64_t row : rows) {
        const double value = table.x[row * table.width() + c];
        if (std::isnan(value)) continue;
        total += term(value);
        ++count;
      }
      return count == 0 ? 0.0 : total / static_cast<double>(count);
    };
    const double mean = sum([](double value) { return value; });
    const double variance = sum([mean](double value) { return (value - mean) * (value - mean); });
    if (!std::isfinite(mean) || !std::isfinite(variance))
      throw UserError(fmt::format("'{}': the numbers in column '{}' are too large to standardise",
                                  table.source,
                                  shown_text(table.features[c])),
                      "give them in a larger unit");
    description.mean.push_back(mean);
    description.deviation.push_back(variance > 0 ? std::sqrt(variance) : 1.0);
  }
}

/// The name of a row's class.
std::string class_name(const Table& table, int64_t row) {
  const double value = table.target[row];
  if (!table.categories.empty()) return table.categories[static_cast<size_t>(value)];
  if (value != std::round(value) || std::abs(value) > 1e15)
    throw UserError(fmt::format("'{}': the target {} is no class", table.source, value),
                    "set task = \"regress\" to predict a number");
  return fmt::format("{:.0f}", value);
}

/// Names of the classes, sorted: numbers as numbers.
std::vector<std::string> classes_of(const Table& table) {
  if (!table.categories.empty()) return table.categories;
  std::map<double, std::string> names;
  for (int64_t row = 0; row < table.rows; ++row)
    names.try_emplace(table.target[row], class_name(table, row));
  std::vector<std::string> classes;
  for (const auto& [value, name] : names) classes.push_back(name);
  return classes;
}

/// Feature `c` of a row as "x" has it.
float standardised(const Table& table, int64_t row, int64_t c, const DataDescription& description) {
  const double value = table.x[row * table.width() + c];
  if (std::isnan(value)) return 0;
  const double normal = (value - description.mean[c]) / description.deviation[c];
  if (!(std::abs(normal) <= std::numeric_limits<float>::max()))
    throw UserError(
        fmt::format(
            "'{}': row {} has {} in column '{}', beyond f32 where the training had {} +- {}",
            table.source,
            row + 1,
            value,
            shown_text(table.features[c]),
            description.mean[c],
            description.deviation[c]),
        "give the column in the unit of the training");
  return static_cast<float>(normal);
}

std::vector<std::string> notes_of(const Table& table) {
  if (table.ignored.empty()) return {};
  const bool one = table.ignored.size() == 1;
  return {fmt::format("'{}': column{} {} {} ignored, since the model was not trained on {}",
                      table.source,
                      one ? "" : "s",
                      named_list(table.ignored),
                      one ? "is" : "are",
                      one ? "it" : "them")};
}

class TableDataset : public Dataset {
 public:
  TableDataset(DataDescription description, const Table& table, const std::vector<int64_t>& rows)
      : Dataset(std::move(description), notes_of(table)) {
    for (int64_t row : rows)
      for (int64_t c = 0; c < table.width(); ++c)
        x_.push_back(standardised(table, row, c, this->description()));
    if (classes() > 0)
      add_classes(table, rows);
    else
      for (int64_t row : rows) numbers_.push_back(static_cast<float>(table.target[row]));
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size() + numbers_.size()); }

  void read(int64_t index, const SampleKey&, std::span<void* const> out, Scratch&) const override {
    const int64_t width = fields()[0].shape[0];
    std::memcpy(out[0], x_.data() + index * width, static_cast<size_t>(width) * sizeof(float));
    if (numbers_.empty())
      *static_cast<int64_t*>(out[1]) = labels_[index];
    else
      *static_cast<float*>(out[1]) = numbers_[index];
  }

 private:
  void add_classes(const Table& table, const std::vector<int64_t>& rows) {
    std::map<std::string, int64_t> places;
    for (const std::string& name : description().class_names)
      places.emplace(name, static_cast<int64_t>(places.size()));
    for (int64_t row : rows) {
      const auto place = places.find(class_name(table, row));
      if (place == places.end())
        throw UserError(
            fmt::format("'{}': row {} is of class '{}', which the training data has not",
                        table.source,
                        row + 1,
                        shown_text(class_name(table, row))),
            "take such rows out, or train on all classes");
      labels_.push_back(place->second);
    }
  }

  std::vector<float> x_;
  std::vector<int64_t> labels_;  // classify
  std::vector<float> numbers_;   // regress
};

std::vector<int64_t> all_rows(const Table& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows));
  for (int64_t i = 0; i < table.rows; ++i) rows[i] = i;
  return rows;
}

}  // namespace

std::unique_ptr<Dataset> open_table_dataset(const DataOptions& options,
                                            Split split,
                                            const DataDescription* trained) {
  const bool apart = !options.eval_path.empty(), other = apart && split == Split::kEval;
  const Table table = read_table({.path = other ? options.eval_path : options.path,
                                  .target = options.target,
                                  .labels = other ? options.eval_labels : options.labels,
                                  .columns = trained != nullptr ? &trained->columns : nullptr});
  const bool classify = options.task == TableTask::kClassify;
  check(classify || table.categories.empty(),
        "'{}': the target '{}' is text, which no regression predicts",
        table.source,
        table.target_name);
  const std::vector<int64_t> rows =
      apart ? all_rows(table) : split_samples(table.rows, options.eval_fraction, split);
  DataDescription description{
      .kind = DataKind::kTable,
      .fields = {{.name = "x", .dtype = DType::kF32, .shape = {table.width()}},
                 {.name = "y", .dtype = classify ? DType::kI64 : DType::kF32, .shape = {}}},
      .columns = table.features,
      .target = table.target_name};
  if (trained != nullptr) {
    description.classes = trained->classes;
    description.class_names = trained->class_names;
    description.mean = trained->mean;
    description.deviation = trained->deviation;
    check_fits(*trained, description);
  } else {
    if (classify) description.class_names = classes_of(table);
    description.classes = static_cast<int64_t>(description.class_names.size());
    add_statistics(table, rows, description);
  }
  return std::make_unique<TableDataset>(std::move(description), table, rows);
}

std::vector<float> read_table_inputs(const std::string& path,
                                     const DataDescription& trained,
                                     std::vector<std::string>& notes) {
  check_kind(trained, DataKind::kTable);
  Table table = read_table({.path = path, .columns = &trained.columns});
  std::erase(table.ignored, trained.target);
  for (std::string& note : notes_of(table)) notes.push_back(std::move(note));
  std::vector<float> x;
  for (int64_t row = 0; row < table.rows; ++row)
    for (int64_t c = 0; c < table.width(); ++c) x.push_back(standardised(table, row, c, trained));
  return x;
}

}  // namespace ridge::data
