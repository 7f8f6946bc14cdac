// The flag that sets the number of threads.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

/// Gives the setting "threads" the text of the flag `where` and puts it into force. UserError for a
/// wrong number.
void set_threads(const std::string& text, std::string_view where);

}  // namespace ridge
