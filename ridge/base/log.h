// Messages for the person at the terminal, on stderr. Errors are thrown, not logged.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace ridge {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// "trace", "debug", "info", "warning", "error", "off".
std::string_view name_of(LogLevel level);

/// The inverse of name_of; UserError for an unknown name.
LogLevel parse_log_level(std::string_view name);

/// The least severe level that is written; at first the setting "log.level".
LogLevel log_level();
void set_log_level(LogLevel level);

/// Writes one line if `level` is enabled. Control characters become '?': a name from a file must
/// not steer the terminal.
void log_message(LogLevel level, std::string_view text);

namespace log_detail {
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}
}  // namespace log_detail

/// Formats (only when enabled) and writes one line.
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_detail::log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_detail::log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_detail::log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_detail::log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace ridge
