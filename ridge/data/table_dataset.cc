// Standardises features by the training rows and numbers the classes.
#include "ridge/data/table_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "ridge/base/error.h"
#include "ridge/data/order.h"
#include "ridge/data/table.h"

namespace ridge::data {
namespace {

struct Statistics {
  std::vector<double> mean, deviation;
};

/// Mean and standard deviation of each feature over `rows`, missing values left out; a deviation of
/// 0 becomes 1.
Statistics statistics_of(const Table& table, const std::vector<int64_t>& rows) {
  Statistics result;
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
    result.mean.push_back(mean);
    result.deviation.push_back(variance > 0 ? std::sqrt(variance) : 1.0);
  }
  return result;
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

class TableDataset : public Dataset {
 public:
  TableDataset(int64_t width, bool classify)
      : fields_{{.name = "x", .dtype = DType::kF32, .shape = {width}},
                {.name = "y", .dtype = classify ? DType::kI64 : DType::kF32, .shape = {}}} {}

  void add(const Table& table, const std::vector<int64_t>& rows, const Statistics& statistics) {
    for (int64_t row : rows)
      for (int64_t c = 0; c < table.width(); ++c) {
        const double value = table.x[row * table.width() + c];
        const double normal = (value - statistics.mean[c]) / statistics.deviation[c];
        x_.push_back(std::isnan(value) ? 0.0f : static_cast<float>(normal));
      }
  }
  void add_numbers(const Table& table, const std::vector<int64_t>& rows) {
    for (int64_t row : rows) numbers_.push_back(static_cast<float>(table.target[row]));
  }
  void add_classes(const Table& table,
                   const std::vector<int64_t>& rows,
                   std::vector<std::string> classes) {
    std::map<std::string, int64_t> places;
    for (const std::string& name : classes)
      places.emplace(name, static_cast<int64_t>(places.size()));
    for (int64_t row : rows) {
      const auto place = places.find(class_name(table, row));
      check(place != places.end(),
            "'{}': row {} is of class '{}', which the training data has not",
            table.source,
            row + 1,
            class_name(table, row));
      labels_.push_back(place->second);
    }
    classes_ = std::move(classes);
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size() + numbers_.size()); }
  const std::vector<FieldType>& fields() const override { return fields_; }
  int64_t classes() const override { return static_cast<int64_t>(classes_.size()); }
  std::vector<std::string> class_names() const override { return classes_; }

  void read(int64_t index, const SampleKey&, std::span<void* const> out, Scratch&) const override {
    const int64_t width = fields_[0].shape[0];
    std::memcpy(out[0], x_.data() + index * width, static_cast<size_t>(width) * sizeof(float));
    if (numbers_.empty())
      *static_cast<int64_t*>(out[1]) = labels_[index];
    else
      *static_cast<float*>(out[1]) = numbers_[index];
  }

 private:
  std::vector<FieldType> fields_;
  std::vector<float> x_;
  std::vector<int64_t> labels_;  // classify
  std::vector<float> numbers_;   // regress
  std::vector<std::string> classes_;
};

std::vector<int64_t> all_rows(const Table& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows));
  for (int64_t i = 0; i < table.rows; ++i) rows[i] = i;
  return rows;
}

}  // namespace

std::unique_ptr<Dataset> open_table_dataset(const DataOptions& options, Split split) {
  const bool classify = options.task == TableTask::kClassify;
  const Table trained = read_table(options.path, options.target, options.labels);
  check(classify || trained.categories.empty(),
        "'{}': the target '{}' is text, which no regression predicts",
        options.path,
        options.target);
  const bool separate = !options.eval_path.empty();
  const std::vector<int64_t> train_rows =
      separate ? all_rows(trained)
               : split_samples(trained.rows, options.eval_fraction, Split::kTrain);
  const Statistics statistics = statistics_of(trained, train_rows);
  auto dataset = std::make_unique<TableDataset>(trained.width(), classify);
  const auto fill = [&](const Table& table, const std::vector<int64_t>& rows) {
    dataset->add(table, rows, statistics);
    if (classify)
      dataset->add_classes(table, rows, classes_of(trained));
    else
      dataset->add_numbers(table, rows);
  };
  if (split == Split::kTrain) {
    fill(trained, train_rows);
  } else if (!separate) {
    fill(trained, split_samples(trained.rows, options.eval_fraction, Split::kEval));
  } else {
    const Table evaluated = read_table(options.eval_path, options.target, options.eval_labels);
    check(evaluated.features == trained.features,
          "'{}' and '{}' do not have the same features in the same order",
          options.path,
          options.eval_path);
    check(classify || evaluated.categories.empty(),
          "'{}': the target '{}' is text, which no regression predicts",
          options.eval_path,
          options.target);
    fill(evaluated, all_rows(evaluated));
  }
  return dataset;
}

}  // namespace ridge::data
