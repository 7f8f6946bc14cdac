// The setting "threads", put into force.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

/// Sets the setting to the text of the flag `where` and applies it. UserError for a wrong number.
void set_threads(const std::string& text, std::string_view where);

/// Makes parallel_for use as many threads as the setting says; 0 is all usable CPUs.
void apply_threads();

}  // namespace ridge
