#include "ridge/data/description.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/type.h"
#include "ridge/base/utf8.h"
#include "ridge/io/json.h"

namespace ridge::data {
namespace {

constexpr std::string_view kSchema = "ridge.data/1";
// A checkpoint's manifest holds the text as one string, whose escapes may double it, and reads back
// up to 100 MiB. Names and numbers of so many columns and classes are within JsonLimits::values.
constexpr size_t kMostBytes = size_t{32} << 20;
constexpr size_t kMostNames = 1'000'000;
constexpr int64_t kMostClasses = int64_t{1} << 30;
constexpr int64_t kByteTokens = 256, kIdxClasses = 256;

bool is_pictures(const DataDescription& d) {
  return d.kind == DataKind::kIdx || d.kind == DataKind::kImages;
}

bool is_tokens(const DataDescription& d) {
  return d.kind == DataKind::kText ||
         (d.kind == DataKind::kRandom && d.fields[0].dtype == DType::kI64);
}

bool is_regression(const DataDescription& d) {
  return d.kind == DataKind::kTable && d.fields[1].dtype == DType::kF32;
}

std::string type_text(const FieldType& field) {
  return to_string(TensorType{field.dtype, field.shape});
}

/// Holds a description against what data of its kind have.
class Checker {
 public:
  Checker(const DataDescription& description, std::string_view source)
      : d_(description), source_(source) {}

  void run() const {
    check_fields();
    check_classes();
    check_table();
    check_normalization();
    need(d_.tokenizer == (d_.kind == DataKind::kText ? kByteTokenizer : ""),
         "unknown tokenizer '{}'",
         shown_text(d_.tokenizer));
  }

 private:
  template <typename... Args>
  void need(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (holds) return;
    throw UserError(
        fmt::format("{}: {}", source_, fmt::format(format, std::forward<Args>(args)...)));
  }

  void check_fields() const {
    need(d_.fields.size() == 2 && d_.fields[0].name == "x" && d_.fields[1].name == "y",
         "the fields of a sample are not x and y");
    const FieldType &x = d_.fields[0], &y = d_.fields[1];
    for (const FieldType* field : {&x, &y}) check_type({field->dtype, field->shape}, source_);
    const bool random = d_.kind == DataKind::kRandom;
    need(x.dtype == DType::kF32 ? d_.kind != DataKind::kText
                                : x.dtype == DType::kI64 && is_tokens(d_),
         "x of data of kind '{}' is not {}",
         name_of(d_.kind),
         type_text(x));
    const size_t rank = is_pictures(d_) ? 3 : 1;
    const int64_t channels = d_.kind == DataKind::kIdx ? 1 : 3;
    need(random || (x.shape.size() == rank && (rank == 1 || x.shape[2] == channels)),
         "x of data of kind '{}' is not {}",
         name_of(d_.kind),
         type_text(x));
    need(d_.kind != DataKind::kImages ||
             (x.shape[0] == x.shape[1] && x.shape[0] <= kMostPictureSize),
         "no pictures are {}: both sides have the same 1 to {} pixels",
         type_text(x),
         kMostPictureSize);
    need(is_tokens(d_) ? y.dtype == DType::kI64 && y.shape == x.shape
                       : (y.dtype == DType::kI64 || is_regression(d_)) && y.shape.empty(),
         "y of data of kind '{}' is not {} where x is {}",
         name_of(d_.kind),
         type_text(y),
         type_text(x));
  }

  void check_classes() const {
    const int64_t most = d_.kind == DataKind::kIdx ? kIdxClasses : kMostClasses;
    need(is_regression(d_) ? d_.classes == 0 : d_.classes >= 1 && d_.classes <= most,
         "no data of kind '{}' have {} classes",
         name_of(d_.kind),
         d_.classes);
    need(d_.kind != DataKind::kText || d_.classes == kByteTokens,
         "the vocabulary of bytes is not {}",
         d_.classes);
    const bool named = d_.kind == DataKind::kImages || d_.kind == DataKind::kTable;
    need(static_cast<int64_t>(d_.class_names.size()) == (named ? d_.classes : 0),
         "{} classes have {} names",
         d_.classes,
         d_.class_names.size());
    check_names(d_.class_names, "classes");
  }

  void check_table() const {
    const bool table = d_.kind == DataKind::kTable;
    need(static_cast<int64_t>(d_.columns.size()) == (table ? d_.fields[0].shape[0] : 0),
         "x is {}, and there are {} columns",
         type_text(d_.fields[0]),
         d_.columns.size());
    check_names(d_.columns, "columns");
    need(table || d_.target.empty(), "a target is no part of this kind of data");
    need(valid_utf8(d_.target) == d_.target, "the name of the target is not UTF-8");
  }

  void check_names(const std::vector<std::string>& names, std::string_view what) const {
    need(names.size() <= kMostNames, "more than {} {}", kMostNames, what);
    std::set<std::string_view> seen;
    for (const std::string& name : names) {
      need(!name.empty() && valid_utf8(name) == name, "names of {} are text", what);
      need(seen.insert(name).second, "two {} are called '{}'", what, shown_text(name));
    }
  }

  void check_normalization() const {
    constexpr double kLargest = std::numeric_limits<float>::max();
    const size_t count =
        is_pictures(d_) ? static_cast<size_t>(d_.fields[0].shape[2]) : d_.columns.size();
    need(d_.mean.size() == count && d_.deviation.size() == count,
         "{} numbers as mean and {} as deviation, where there are {} columns or channels",
         d_.mean.size(),
         d_.deviation.size(),
         count);
    for (size_t i = 0; i < count; ++i) {
      need(std::isfinite(d_.mean[i]), "mean {} is {}", i, d_.mean[i]);
      need(std::isfinite(d_.deviation[i]) && d_.deviation[i] > 0,
           "deviation {} is {}",
           i,
           d_.deviation[i]);
      // Both factors of a channel are f32.
      need(!is_pictures(d_) || (1 / d_.deviation[i] <= kLargest &&
                                std::abs(d_.mean[i]) / d_.deviation[i] <= kLargest),
           "mean {} and deviation {} leave the range of f32",
           d_.mean[i],
           d_.deviation[i]);
    }
  }

  const DataDescription& d_;
  std::string_view source_;
};

template <typename T>
void write_list(JsonWriter& json, std::string_view key, const std::vector<T>& list) {
  json.key(key).begin_array();
  for (const T& item : list) json.value(item);
  json.end_array();
}

FieldType parse_field(const JsonValue& root, const std::string& name, const std::string& source) {
  const std::string where = source + ": " + name;
  const JsonValue& value = root.at(name, source);
  const std::string& dtype = value.at("dtype", where).as_string(where);
  const auto parsed = parse_dtype(dtype);
  check(parsed.has_value(), "{}: unknown dtype '{}'", where, shown_text(dtype));
  FieldType field{.name = name, .dtype = *parsed, .shape = {}};
  for (const JsonValue& size : value.at("shape", where).as_array(where))
    field.shape.push_back(size.as_integer(where));
  return field;
}

std::vector<std::string> parse_names(const JsonValue& root,
                                     std::string_view key,
                                     const std::string& source) {
  const std::string where = fmt::format("{}: {}", source, key);
  std::vector<std::string> names;
  for (const JsonValue& value : root.at(key, source).as_array(where))
    names.push_back(value.as_string(where));
  return names;
}

std::vector<double> parse_numbers(const JsonValue& root,
                                  std::string_view key,
                                  const std::string& source) {
  const std::string where = fmt::format("{}: {}", source, key);
  std::vector<double> numbers;
  for (const JsonValue& value : root.at(key, source).as_array(where))
    numbers.push_back(value.as_number(where));
  return numbers;
}

}  // namespace

int64_t FieldType::elements() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

int64_t FieldType::bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }

std::string print_description(const DataDescription& description) {
  const std::string source = "what a checkpoint says of its data";
  Checker(description, source).run();
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", kSchema).field("kind", name_of(description.kind));
  for (const FieldType& field : description.fields) {
    json.key(field.name).begin_object().field("dtype", name_of(field.dtype));
    write_list(json, "shape", field.shape);
    json.end_object();
  }
  json.field("classes", description.classes);
  write_list(json, "class_names", description.class_names);
  write_list(json, "columns", description.columns);
  json.field("target", description.target).field("tokenizer", description.tokenizer);
  write_list(json, "mean", description.mean);
  write_list(json, "deviation", description.deviation);
  json.end_object().finish();
  if (text.size() > kMostBytes)
    throw UserError(fmt::format("{}: it has {} bytes, at most {}", source, text.size(), kMostBytes),
                    "shorten the names of columns and classes");
  return text;
}

DataDescription parse_description(std::string_view text, std::string_view source) {
  const std::string where(source);
  const JsonValue root = parse_json(text, source, {.bytes = kMostBytes, .depth = 4});
  const std::string& schema = root.at("schema", where).as_string(where + ": schema");
  if (schema != kSchema)
    throw UserError(
        fmt::format("{}: schema '{}', expected '{}'", source, shown_text(schema), kSchema),
        "read it with the version of ridge that wrote it");
  const std::string& kind = root.at("kind", where).as_string(where + ": kind");
  const auto parsed = parse_name<DataKind>(kind);
  check(parsed.has_value(), "{}: unknown kind of data '{}'", source, shown_text(kind));
  DataDescription description{.kind = *parsed};
  for (const char* name : {"x", "y"}) description.fields.push_back(parse_field(root, name, where));
  description.classes = root.at("classes", where).as_integer(where + ": classes");
  description.class_names = parse_names(root, "class_names", where);
  description.columns = parse_names(root, "columns", where);
  description.target = root.at("target", where).as_string(where + ": target");
  description.tokenizer = root.at("tokenizer", where).as_string(where + ": tokenizer");
  description.mean = parse_numbers(root, "mean", where);
  description.deviation = parse_numbers(root, "deviation", where);
  Checker(description, source).run();
  return description;
}

void check_kind(const DataDescription& trained, DataKind kind) {
  if (kind != trained.kind)
    throw UserError(fmt::format("the model was trained on data of kind '{}', not '{}'",
                                name_of(trained.kind),
                                name_of(kind)),
                    fmt::format("set data.kind to '{}'", name_of(trained.kind)));
}

void check_fits(const DataDescription& trained, const DataDescription& found) {
  check_kind(trained, found.kind);
  if (found.target != trained.target)
    throw UserError(
        fmt::format("the model predicts column '{}', not '{}'", trained.target, found.target),
        fmt::format("set data.target to '{}'", trained.target));
  if (is_regression(found) != is_regression(trained))
    throw UserError(
        fmt::format("the model was trained to predict {}, not {}",
                    is_regression(trained) ? "a number" : "a class",
                    is_regression(found) ? "a number" : "a class"),
        fmt::format("set data.task to '{}'",
                    name_of(is_regression(trained) ? TableTask::kRegress : TableTask::kClassify)));
  const FieldType &wanted = trained.fields[0], &x = found.fields[0];
  const bool same_sizes =
      is_tokens(trained) ? x.shape.size() == wanted.shape.size() : x.shape == wanted.shape;
  if (x.dtype != wanted.dtype || !same_sizes)
    throw UserError(
        fmt::format(
            "a sample's x is {}, but the model was trained on {}", type_text(x), type_text(wanted)),
        found.kind == DataKind::kImages ? fmt::format("set data.size to {}", wanted.shape[0])
                                        : "give data of the size that the training had");
  if (found.classes != trained.classes || found.tokenizer != trained.tokenizer)
    throw UserError(
        fmt::format("the data have {} {}, but the model was trained on {}",
                    found.classes,
                    is_tokens(found) ? "tokens" : "classes",
                    trained.classes),
        fmt::format(
            "give data of {} {}", trained.classes, is_tokens(found) ? "tokens" : "classes"));
}

std::string set_normalization(DataDescription& description,
                              const DataOptions& options,
                              const DataDescription* trained) {
  const auto channels = static_cast<size_t>(description.fields[0].shape[2]);
  for (const auto* list : {&options.mean, &options.deviation})
    check(list->empty() || list->size() == channels,
          "these pictures have {} channels, but mean or deviation has {} numbers",
          channels,
          list->size());
  for (const double deviation : options.deviation)
    check(deviation > 0, "deviation is {}: it must be above 0", deviation);
  const auto numbers = [&](const std::vector<double>& list, double usual) {
    return list.empty() ? std::vector<double>(channels, usual) : list;
  };
  description.mean = numbers(options.mean, 0);
  description.deviation = numbers(options.deviation, 1);
  if (trained == nullptr) return {};
  const bool same =
      description.mean == trained->mean && description.deviation == trained->deviation;
  description.mean = trained->mean;
  description.deviation = trained->deviation;
  if (same) return {};
  return fmt::format(
      "pictures are normalised as in training, by mean {} and deviation {}, and not by what "
      "data.mean and data.deviation say",
      trained->mean,
      trained->deviation);
}

}  // namespace ridge::data
