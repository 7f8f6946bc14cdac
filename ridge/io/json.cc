#include "ridge/io/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr std::string_view kKinds[] = {"null",
                                       "a boolean",
                                       "an integer",
                                       "an integer",
                                       "a number",
                                       "a string",
                                       "an array",
                                       "an object"};

template <typename T>
const T& get_as(const JsonValue& value, std::string_view where, std::string_view wanted) {
  const T* found = std::get_if<T>(&value.data());
  check(found != nullptr, "{}: expected {}, got {}", where, wanted, kKinds[value.data().index()]);
  return *found;
}

}  // namespace

/// Receives the events of nlohmann's parser; the open arrays and objects lie on a stack.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view source, const JsonLimits& limits)
      : source_(source), limits_(limits) {}

  JsonValue take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add(static_cast<int64_t>(value));
    return add(value);
  }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(std::vector<std::uint8_t>&) { return add(nullptr); }
  bool start_object(size_t) { return open(JsonValue::Object()); }
  bool start_array(size_t) { return open(JsonValue::Array()); }
  bool end_object() {
    check_keys(std::get<JsonValue::Object>(levels_.back().value.data_));
    return close();
  }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    levels_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    throw UserError(fmt::format("{}: not valid JSON at byte {}", source_, position));
  }

 private:
  struct Level {
    JsonValue value;
    std::string key;
  };

  void check_keys(const JsonValue::Object& object) const {
    std::vector<std::string_view> keys;
    for (const auto& member : object) keys.push_back(member.first);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end())
      throw UserError(fmt::format("{}: key '{}' appears twice", source_, *twice));
  }

  bool open(JsonValue::Data data) {
    check(static_cast<int>(levels_.size()) < limits_.depth,
          "{}: more than {} levels of JSON",
          source_,
          limits_.depth);
    levels_.push_back({JsonValue(std::move(data)), {}});
    return true;
  }

  bool close() {
    JsonValue value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value.data_));
  }

  bool add(JsonValue::Data data) {
    check(++values_ <= limits_.values, "{}: more than {} JSON values", source_, limits_.values);
    if (levels_.empty()) {
      root_ = JsonValue(std::move(data));
      return true;
    }
    Level& level = levels_.back();
    if (auto* array = std::get_if<JsonValue::Array>(&level.value.data_))
      array->emplace_back(std::move(data));
    else
      std::get<JsonValue::Object>(level.value.data_)
          .emplace_back(std::move(level.key), JsonValue(std::move(data)));
    return true;
  }

  std::string_view source_;
  const JsonLimits& limits_;
  size_t values_ = 0;
  std::vector<Level> levels_;
  JsonValue root_;
};

bool JsonValue::as_bool(std::string_view where) const {
  return get_as<bool>(*this, where, "true or false");
}

int64_t JsonValue::as_integer(std::string_view where) const {
  check(!std::holds_alternative<uint64_t>(data_), "{}: integer out of range", where);
  return get_as<int64_t>(*this, where, "an integer");
}

double JsonValue::as_number(std::string_view where) const {
  if (const auto* integer = std::get_if<int64_t>(&data_)) return static_cast<double>(*integer);
  if (const auto* integer = std::get_if<uint64_t>(&data_)) return static_cast<double>(*integer);
  return get_as<double>(*this, where, "a number");
}

const std::string& JsonValue::as_string(std::string_view where) const {
  return get_as<std::string>(*this, where, "a string");
}

const JsonValue::Array& JsonValue::as_array(std::string_view where) const {
  return get_as<Array>(*this, where, "an array");
}

const JsonValue::Object& JsonValue::as_object(std::string_view where) const {
  return get_as<Object>(*this, where, "an object");
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (const auto* object = std::get_if<Object>(&data_))
    for (const auto& [name, value] : *object)
      if (name == key) return &value;
  return nullptr;
}

const JsonValue& JsonValue::at(std::string_view key, std::string_view where) const {
  as_object(where);
  const JsonValue* value = find(key);
  check(value != nullptr, "{}: '{}' is missing", where, key);
  return *value;
}

JsonValue parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  check(text.size() <= limits.bytes,
        "{}: JSON text too large; got {} bytes, at most {}",
        source,
        text.size(),
        limits.bytes);
  JsonBuilder builder(source, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace ridge
