// The report on a file of `ridge capture`.
#pragma once

#include <string>
#include <string_view>

#include "ridge/cli/inspect/inspect.h"

namespace ridge {

/// Operators, FLOPs and bytes of each graph in the file, whose text is given. UserError for a text
/// that is no such file, or has a graph that this version cannot import.
std::string capture_report(std::string_view text, const InspectOptions& options);

}  // namespace ridge
