// Enums whose values have names that users write and read. An enum lists its names once, in the
// order of its values:
//
//   enum class Padding : uint8_t { kContext, kLongest };
//   constexpr std::string_view names_of(Padding) { return "context|longest"; }
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ridge {

/// An enum of uint8_t with a list of names: its values are 0, 1, ... in the order of the list.
template <typename E>
concept NamedEnum =
    std::is_enum_v<E> && std::same_as<std::underlying_type_t<E>, uint8_t> && requires(E value) {
      { names_of(value) } -> std::same_as<std::string_view>;
    };

/// The name in place `index` of the list "a|b|c"; empty beyond its end.
constexpr std::string_view name_at(std::string_view names, size_t index) {
  for (; index > 0; --index) {
    const size_t bar = names.find('|');
    if (bar == std::string_view::npos) return {};
    names.remove_prefix(bar + 1);
  }
  return names.substr(0, names.find('|'));
}

/// The place of `name` in the list "a|b|c"; nothing where it is not in it.
constexpr std::optional<uint8_t> place_of(std::string_view names, std::string_view name) {
  for (uint8_t place = 0;; ++place) {
    const size_t bar = names.find('|');
    if (names.substr(0, bar) == name) return place;
    if (bar == std::string_view::npos) return std::nullopt;
    names.remove_prefix(bar + 1);
  }
}

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  return name_at(names_of(value), static_cast<size_t>(value));
}

/// The value of that name; nothing where no value has it.
template <NamedEnum E>
constexpr std::optional<E> parse_name(std::string_view name) {
  const std::optional<uint8_t> place = place_of(names_of(E{}), name);
  return place ? std::optional(static_cast<E>(*place)) : std::nullopt;
}

}  // namespace ridge
