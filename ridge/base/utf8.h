// Text from outside is bytes until checked: well-formed UTF-8 as the Unicode standard has it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ridge {

/// Bytes of the UTF-8 character that `text` begins with (1 to 4), or 0 when none does: a stray
/// byte, a truncated, overlong or surrogate form, a value above U+10FFFF, or no text at all.
size_t utf8_length(std::string_view text);

/// `text` with each byte that belongs to no well-formed character replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

/// The first 60 bytes of a text from outside, as valid_utf8(), with "..." where there are more: fit
/// for a message.
std::string shown_text(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

}  // namespace ridge
