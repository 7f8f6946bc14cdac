// Events of a trace as text, for tests.
#pragma once

#include <fmt/format.h>

#include <string>

#include "ridge/base/trace/trace_event.h"

namespace ridge::cuda {

inline std::string text_of(const TraceValue& value) {
  const auto* const number = std::get_if<int64_t>(&value);
  return number != nullptr ? std::to_string(*number) : std::get<std::string>(value);
}

/// The event's argument `name` as text; empty: there is none.
inline std::string text(const TraceEvent& event, const std::string& name) {
  for (const auto& [key, value] : event.args)
    if (key == name) return text_of(value);
  return "";
}

/// "kernel: add, 5000 + 750 ns, thread 0, stream 13, correlation 77; grid [8, 2, 1]; ..."
inline std::string text_of(const TraceEvent& event) {
  std::string line = fmt::format("{}: {}, {} + {} ns, thread {}, stream {}",
                                 event.category,
                                 event.name,
                                 event.start_ns,
                                 event.duration_ns,
                                 event.thread,
                                 event.stream);
  if (event.correlation) line += fmt::format(", correlation {}", *event.correlation);
  for (const auto& [key, value] : event.args) line += fmt::format("; {} {}", key, text_of(value));
  return line;
}

}  // namespace ridge::cuda
