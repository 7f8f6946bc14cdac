// JSON from outside as a tree: integers and floats kept apart, duplicate keys refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ridge {

/// One value of a JSON text. The as_... functions throw a UserError that names `where` when the
/// value is of another kind.
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  // in the order of the text
  /// An integer beyond int64 is a uint64_t, and beyond that a double.
  using Data =
      std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object>;

  JsonValue() = default;  // null; a default argument would crash clang 19
  JsonValue(Data data) : data_(std::move(data)) {}
  const Data& data() const { return data_; }

  bool as_bool(std::string_view where) const;
  /// An integer that fits; 3.0 is none.
  int64_t as_integer(std::string_view where) const;
  /// Any number, an integer included.
  double as_number(std::string_view where) const;
  const std::string& as_string(std::string_view where) const;
  const Array& as_array(std::string_view where) const;
  const Object& as_object(std::string_view where) const;

  /// The member `key` of an object, nullptr when there is none.
  const JsonValue* find(std::string_view key) const;
  /// The member `key` of an object; UserError when it is missing.
  const JsonValue& at(std::string_view key, std::string_view where) const;

 private:
  friend class JsonBuilder;
  Data data_;
};

/// Upper bounds for one text; a text beyond any of them is refused.
struct JsonLimits {
  size_t bytes = size_t{100} << 20;
  size_t values = size_t{1} << 22;
  int depth = 64;
};

/// The value of `text`. UserError that opens with `source` for a syntax error (with its byte),
/// text that is not UTF-8, a key that appears twice in an object, or a limit exceeded.
JsonValue parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

}  // namespace ridge
