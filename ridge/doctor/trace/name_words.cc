#include "ridge/doctor/trace/name_words.h"

#include <algorithm>

namespace ridge::doctor {

// Names of kernels are long, and asked for many words: where a word may begin is found a register
// at a time.
bool holds(std::string_view text, std::string_view part) {
  if (part.empty()) return true;
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const auto begins_at = [&](char first) {
    for (size_t at = text.find(first); at != text.npos && text.size() - at >= part.size();
         at = text.find(first, at + 1))
      if (std::equal(part.begin() + 1,
                     part.end(),
                     text.begin() + static_cast<ptrdiff_t>(at) + 1,
                     [&](char b, char a) { return lower(a) == b; }))
        return true;
    return false;
  };
  const char first = part.front();
  const bool is_letter = first >= 'a' && first <= 'z';
  return begins_at(first) || (is_letter && begins_at(static_cast<char>(first - 'a' + 'A')));
}

bool holds_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::any_of(
      parts.begin(), parts.end(), [text](std::string_view part) { return holds(text, part); });
}

}  // namespace ridge::doctor
