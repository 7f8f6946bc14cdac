// Text made safe to stand in HTML and SVG, and on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

/// `text` for element content or a quoted attribute: & < > " ' become entities; control characters
/// but tab and newline, and bytes that are not UTF-8, become U+FFFD.
std::string escape_markup(std::string_view text);

/// `text` on one line: what controls a terminal becomes '?', what is not UTF-8 U+FFFD.
std::string plain_line(std::string_view text);

/// The start of plain_line(text): at most `most` characters, and an ellipsis where there are more.
std::string shortened(std::string_view text, size_t most);

}  // namespace ridge
