#include "ridge/config/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "ridge/base/error.h"
#include "ridge/base/settings.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

template <typename T>
inline constexpr bool is_list_type = false;
template <typename T>
inline constexpr bool is_list_type<std::vector<T>> = true;

// Calls `body` with a tag of the type of the field's value; NamedField stands for all enums.
template <typename F>
decltype(auto) with_type(const ConfigField& field, F&& body) {
  return std::visit(
      [&](auto held) { return body(TypeTag<std::remove_pointer_t<decltype(held)>>{}); }, field);
}

template <typename T>
std::string_view item_name() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_integral_v<T>) return "integer";
  return "string";
}

template <typename T>
T number_of(std::string_view text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

struct Range {
  explicit Range(std::string_view allowed) {
    const size_t dots = allowed.find("..");
    low = allowed.substr(0, dots);
    high = allowed.substr(dots + 2);
    open = high.starts_with('<');
    if (open) high.remove_prefix(1);
  }
  std::string_view low, high;
  bool open;
};

template <typename T>
bool in_range(T value, std::string_view allowed) {
  if (allowed.empty()) return true;
  const Range range(allowed);
  const T high = number_of<T>(range.high);
  return value >= number_of<T>(range.low) && (range.open ? value < high : value <= high);
}

// One scalar of a list, or the only one.
template <typename T, typename Variant>
bool take(const ConfigKey& key, const Variant& value, T& target) {
  if constexpr (std::is_same_v<T, double>) {
    const int64_t* whole = std::get_if<int64_t>(&value);
    const double* real = std::get_if<double>(&value);
    if (whole == nullptr && real == nullptr) return false;
    target = whole != nullptr ? static_cast<double>(*whole) : *real;
    return std::isfinite(target) && in_range(target, key.allowed);
  } else if constexpr (std::is_same_v<T, bool>) {
    const bool* given = std::get_if<bool>(&value);
    if (given != nullptr) target = *given;
    return given != nullptr;
  } else if constexpr (std::is_integral_v<T>) {
    const int64_t* given = std::get_if<int64_t>(&value);
    if (given == nullptr || !in_range(*given, key.allowed)) return false;
    target = static_cast<T>(*given);
    return true;
  } else {
    const std::string* given = std::get_if<std::string>(&value);
    if (given == nullptr || valid_utf8(*given) != *given) return false;
    if (!key.allowed.empty() && !has_choice(key.allowed, *given)) return false;
    if constexpr (std::is_same_v<T, DType>)
      target = parse_dtype(*given).value();
    else
      target = *given;
    return true;
  }
}

template <typename T>
bool take_list(const ConfigKey& key, const TomlValue& value, std::vector<T>& target) {
  const auto* items = std::get_if<std::vector<TomlScalar>>(&value);
  if (items == nullptr || items->size() < key.min_items || items->size() > kMostItems) return false;
  target.resize(items->size());
  for (size_t i = 0; i < items->size(); ++i)
    if (!take(key, (*items)[i], target[i])) return false;
  return true;
}

template <typename T>
bool assign_to(T* field, const ConfigKey& key, const TomlValue& value) {
  T taken{};
  bool fits;
  if constexpr (is_list_type<T>)
    fits = take_list(key, value, taken);
  else
    fits = take(key, value, taken);
  if (fits) *field = std::move(taken);
  return fits;
}

bool assign_to(NamedField field, const ConfigKey&, const TomlValue& value) {
  const std::string* name = std::get_if<std::string>(&value);
  return name != nullptr && field.set(*name);
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // "inf" and "nan" as they are
  return text;
}

template <typename T>
std::string scalar_text(const T& value) {
  if constexpr (std::is_same_v<T, DType>)
    return toml_quoted(name_of(value));
  else if constexpr (std::is_same_v<T, std::string>)
    return toml_quoted(value);
  else if constexpr (std::is_same_v<T, double>)
    return number_text(value);
  else if constexpr (std::is_same_v<T, TomlScalar>)
    return std::visit([](const auto& held) { return scalar_text(held); }, value);
  else
    return fmt::format("{}", value);
}

template <typename T>
std::string any_text(const T& value) {
  if constexpr (is_list_type<T>) {
    std::string text;
    for (const auto& item : value) text += (text.empty() ? "" : ", ") + scalar_text(item);
    return "[" + text + "]";
  } else {
    return scalar_text(value);
  }
}

template <typename T>
std::string field_text(const T* field) {
  return any_text(*field);
}

std::string field_text(NamedField field) { return toml_quoted(field.name()); }

std::vector<TomlScalar> split_words(std::string_view text) {
  std::vector<TomlScalar> words;
  for (;;) {
    const size_t comma = text.find(',');
    words.emplace_back(std::string(text.substr(0, comma)));
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string type_name(const ConfigField& field) {
  return with_type(field, []<typename T>(TypeTag<T>) {
    if constexpr (is_list_type<T>)
      return fmt::format("list of {}s", item_name<typename T::value_type>());
    else
      return std::string(item_name<T>());
  });
}

std::string expectation(const ConfigKey& key) {
  const std::string type = type_name(key.field);
  std::string text = type == "true or false" ? type : (type.starts_with('i') ? "an " : "a ") + type;
  if (key.min_items > 0) text += fmt::format(" with at least {} item", key.min_items);
  if (key.allowed.empty()) return text;
  if (key.allowed.find("..") == std::string_view::npos) {
    std::string choices;
    for (char c : key.allowed) choices += c == '|' ? ", " : std::string(1, c);
    return "one of " + choices;
  }
  const Range range(key.allowed);
  return fmt::format("{} from {} to {}{}", text, range.low, range.open ? "below " : "", range.high);
}

bool assign(const ConfigKey& key, const TomlValue& value) {
  return std::visit([&](auto field) { return assign_to(field, key, value); }, key.field);
}

TomlValue parse_flag(const ConfigField& field, const std::string& text) {
  const bool is_list = with_type(field, []<typename T>(TypeTag<T>) { return is_list_type<T>; });
  const bool is_text = std::holds_alternative<std::string*>(field) ||
                       std::holds_alternative<DType*>(field) ||
                       std::holds_alternative<NamedField>(field);
  if (is_text && !text.starts_with('"')) return text;
  const bool is_open = is_list && !text.starts_with('[');
  try {
    std::vector<TomlEntry> entries =
        read_toml(is_open ? "v = [" + text + "]" : "v = " + text, "flag");
    if (entries.size() == 1 && entries[0].key == "v" && !entries[0].is_table)
      return std::move(entries[0].value);
  } catch (const UserError&) {
    // Not TOML: a string without quotes, or an error for assign() to refuse.
  }
  if (is_open && std::holds_alternative<std::vector<std::string>*>(field)) return split_words(text);
  return text;
}

std::string value_text(const ConfigField& field) {
  return std::visit([](auto held) { return field_text(held); }, field);
}

std::string value_text(const TomlValue& value) {
  return std::visit([](const auto& held) { return any_text(held); }, value);
}

bool is_setting(std::string_view name) {
  const auto rows = setting_rows();
  return std::any_of(
      rows.begin(), rows.end(), [&](const SettingRow& row) { return row.name == name; });
}

std::string setting_text(const TomlValue& value) {
  const std::string* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : value_text(value);
}

std::string setting_text(const std::string& flag) {
  std::string unquoted;
  return setting_text(parse_flag(&unquoted, flag));
}

}  // namespace ridge
