// Checks that throw the errors of api/error.h, and names that are close to a wrong one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/api/error.h"

namespace ridge {

/// An argument of a check that takes time to make: `make` is called only where the check fails.
template <typename Make>
struct Lazily {
  Make make;
};
template <typename Make>
Lazily(Make) -> Lazily<Make>;

/// Throws UserError with the formatted message unless `condition` holds.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError with the formatted message unless `condition` holds.
template <typename... Args>
void check_internal(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

/// Up to `limit` of `known` that are closest to `name` by edit distance, nearest first; those
/// farther than a third of the longer name's length (at least 2) are left out.
std::vector<std::string> nearest_names(std::string_view name,
                                       const std::vector<std::string>& known,
                                       size_t limit = 3);

/// "did you mean 'a' or 'b'?" for the nearest of `known`, or an empty string when none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace ridge

template <typename Make>
struct fmt::formatter<ridge::Lazily<Make>> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const ridge::Lazily<Make>& lazily, fmt::format_context& context) const {
    const std::string text = lazily.make();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
