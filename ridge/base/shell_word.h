// Commands that people can paste.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

/// `text` as one word of a shell.
std::string shell_word(std::string_view text);

}  // namespace ridge
