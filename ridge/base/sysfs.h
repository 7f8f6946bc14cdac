// Reads the small files in which the system reports on itself.
#pragma once

#include <string>

namespace ridge {

/// The first line of a file; empty where it has none or cannot be read.
std::string first_line(const std::string& path);

}  // namespace ridge
