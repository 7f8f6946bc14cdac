// Commands that show whether a fix holds.
#pragma once

#include <string>

#include "ridge/doctor/finding.h"

namespace ridge::doctor {

/// To be run after the change: records again where Ridge can, and compares. `set` is what Ridge
/// would be told, such as "loader.workers=4"; empty where the program itself is to be changed.
std::string proof_of(const Trace& trace, std::string_view set = {});

/// `text` as one word of a shell.
std::string shell_word(std::string_view text);

}  // namespace ridge::doctor
