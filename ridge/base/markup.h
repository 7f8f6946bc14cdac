// Text made safe to stand in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

/// `text` for element content or a quoted attribute: & < > " ' become entities; control characters
/// but tab and newline, and bytes that are not UTF-8, become U+FFFD.
std::string escape_markup(std::string_view text);

}  // namespace ridge
