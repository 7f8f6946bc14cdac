#include "ridge/base/html/markup.h"

#include <algorithm>

#include "ridge/base/utf8.h"

namespace ridge {

std::string escape_markup(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text.front();
    const bool control = length == 1 && static_cast<unsigned char>(c) < 0x20;
    if (length == 0 || (control && c != '\t' && c != '\n') || c == 0x7f)
      safe += kReplacementCharacter;
    else if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else if (c == '\'')
      safe += "&#39;";
    else
      safe += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return safe;
}

std::string plain_line(std::string_view text) {
  std::string plain;
  for (const std::string valid = valid_utf8(text); char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    // U+0080 to U+009F are C2 80 to C2 9F, and control terminals as well.
    const bool is_second = !plain.empty() && plain.back() == '\xc2' && byte < 0xa0 && byte >= 0x80;
    if (is_second)
      plain.back() = '?';
    else
      plain += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return plain;
}

std::string shortened(std::string_view text, size_t most) {
  const std::string plain = plain_line(text);
  std::string shown;
  size_t at = 0;
  for (size_t count = 0; at < plain.size(); ++count) {
    if (count == most) return shown + "\u2026";
    const size_t length = std::max<size_t>(1, utf8_length(std::string_view(plain).substr(at)));
    shown += plain.substr(at, length);
    at += length;
  }
  return shown;
}

}  // namespace ridge
