// Lists of names for messages.
#pragma once

#include <string>
#include <vector>

namespace ridge {

/// "'a', 'b' and 'c'", as UTF-8; of many names the first few, and how many more there are.
std::string named_list(const std::vector<std::string>& names);

}  // namespace ridge
