#include "ridge/base/utf8.h"

#include <algorithm>

namespace ridge {

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  // The second byte's range says it all (Unicode, table 3-7): it excludes overlong forms,
  // surrogates and values above U+10FFFF.
  size_t length;
  unsigned low = 0x80, high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return length;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    valid += length ? text.substr(0, length) : kReplacementCharacter;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return valid;
}

std::string shown_text(std::string_view text) {
  constexpr size_t kShown = 60;
  return valid_utf8(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
}

}  // namespace ridge
