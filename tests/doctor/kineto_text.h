// Reads Kineto traces from texts, in pieces of any size.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/doctor/read/read_kineto.h"

namespace ridge::doctor {

/// Gives `text` up to `first`, then in pieces of at most `piece` bytes.
inline Trace read_pieces(std::string_view text, size_t first, size_t piece) {
  size_t at = 0;
  return read_kineto(
      [&](std::span<std::byte> out) {
        const size_t want = at < first ? first - at : piece;
        const size_t count = std::min({want, out.size(), text.size() - at});
        std::copy_n(as_bytes(text).begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
        at += count;
        return count;
      },
      "text");
}

inline Trace read_text(std::string_view text) { return read_pieces(text, 0, text.size()); }

/// A trace of these events, each a JSON object.
inline std::string trace_text(const std::vector<std::string>& events) {
  std::string text = "{\"schemaVersion\": 1, \"traceEvents\": [\n";
  for (size_t i = 0; i < events.size(); ++i) text += (i > 0 ? ",\n" : "") + events[i];
  return text + "]}\n";
}

}  // namespace ridge::doctor
