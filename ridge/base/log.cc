#include "ridge/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/settings.h"

namespace ridge {
namespace {

constexpr int kUnset = -1;
std::atomic<int> current_level{kUnset};

const std::vector<std::string>& level_names() {
  static const std::vector<std::string> names = {
      "trace", "debug", "info", "warning", "error", "off"};
  return names;
}

// Our own logger, outside spdlog's registry: a program that uses Ridge may use spdlog too.
spdlog::logger& logger() {
  static const auto* const made = [] {
    auto fresh = std::make_unique<spdlog::logger>(
        "ridge", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    fresh->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    fresh->set_level(spdlog::level::trace);  // log_level() decides
    fresh->flush_on(spdlog::level::trace);
    return new std::unique_ptr<spdlog::logger>(std::move(fresh));  // usable until the very exit
  }();
  return **made;
}

}  // namespace

std::string_view name_of(LogLevel level) { return level_names()[static_cast<size_t>(level)]; }

LogLevel parse_log_level(std::string_view name) {
  const std::vector<std::string>& names = level_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UserError(fmt::format("unknown log level '{}'", name), did_you_mean(name, names));
  return static_cast<LogLevel>(found - names.begin());
}

LogLevel log_level() {
  int level = current_level.load(std::memory_order_relaxed);
  if (level == kUnset) {
    int expected = kUnset;
    level = static_cast<int>(parse_log_level(settings().get_string("log.level")));
    if (!current_level.compare_exchange_strong(expected, level)) level = expected;
  }
  return static_cast<LogLevel>(level);
}

void set_log_level(LogLevel level) { current_level = static_cast<int>(level); }

void log_message(LogLevel level, std::string_view text) {
  if (level < log_level() || level >= LogLevel::kOff) return;
  std::string line(text);
  for (char& c : line)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = '?';
  // Ridge's levels are spdlog's, in the same order, as far as "error".
  logger().log(static_cast<spdlog::level::level_enum>(level), line);
}

}  // namespace ridge
