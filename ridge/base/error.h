// The two error families of Ridge. Library code throws them and never prints, aborts or exits.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

/// Wrong input, configuration or environment. The message is lower case and says what is wrong,
/// where, and why; `fix()` holds the one thing to do about it (may be empty).
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, std::string fix = {})
      : std::runtime_error(fix.empty() ? message : message + "; " + fix),
        message_(message),
        fix_(std::move(fix)) {}
  /// The text of what(), without the fix.
  const std::string& message() const { return message_; }
  const std::string& fix() const { return fix_; }

 private:
  std::string message_, fix_;
};

/// A device, or the host, has less memory free than was asked for. Less may still be had.
class OutOfMemory : public UserError {
 public:
  using UserError::UserError;
};

/// A fault of Ridge itself. The message carries the printed node where there is one.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

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
